"""Orders in which the tokens of a window are asked for (Yang et al. 2019, arXiv 1906.08237).

Of every T tokens T / K are asked, in an order of their own drawn evenly; the others are context, which all see and which
asks nothing. Unlike in the paper's code the asked tokens are single ones drawn evenly, not spans of whole words.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
CONTEXT = -1


class Orders(NamedTuple):
    order: NDArray[np.integer]  # [n T]: the rank of each asked token, -1 for context
    labels: NDArray[np.integer]  # [n T]: the token itself where it is asked, else -100


def draw_orders(
    tokens: NDArray[np.integer], k: int, rng: np.random.Generator, *, never: Collection[int] = ()
) -> Orders:
    """Tokens among `never` are context always."""
    spared = np.isin(tokens, list(never))
    asked = np.where(spared, 2.0, rng.random(tokens.shape)).argsort(1)
    asked = asked[:, : max(1, tokens.shape[1] // k)]
    order = np.full(tokens.shape, CONTEXT, dtype=np.int32)
    np.put_along_axis(order, asked, np.arange(asked.shape[1], dtype=np.int32)[None], axis=1)
    order[spared] = CONTEXT
    return Orders(order, np.where(order == CONTEXT, np.int32(IGNORED), tokens))
