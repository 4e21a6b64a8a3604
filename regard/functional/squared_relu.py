"""Attention with relu(score)^2 in the place of softmax (Hua et al. 2022, arXiv 2202.10447).

    y_i = sum over allowed j of a_ij v_j,   a_ij = relu(q_i . k_j + b_ij)^2 / n_i

n_i is the number of keys that i may see, or a constant. A row needs no maximum and no sum of exponentials.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core import OPEN, Above0, Keys, Mask, Mixed, MixedTile, Queries, Values
from regard.functional.rows import Impl, tiled, visible_keys

Bias = Callable[[slice], Tensor]
"""Queries -> what is added to their scores, [b h t S]; so that no [T S] is stored."""


def squared_relu_attention(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    mask: Mask = OPEN,
    bias: Bias | None = None,
    divisor: Above0 | None = None,
    impl: Impl = "auto",
) -> Mixed:
    """relu(q k^T + bias)^2 v over the allowed keys, divided by `divisor`, or by their number where it is None.

    impl: see `functional.rows`.
    """
    T, S = q.shape[2], k.shape[2]

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> MixedTile:
        cols = visible_keys(mask, T, S, rows)
        allowed = mask.dense(T, S, device=q.device, rows=rows, cols=cols)
        b = None if bias is None else bias(rows)[..., cols]
        # The product comes last: a tile that is computed again for its backward ends before it.
        return weights(q, k[:, :, cols], allowed, bias=b, divisor=divisor) @ v[:, :, cols]

    return tiled(some, impl, q, k, v)


def weights(
    q: Float[Tensor, "*b T K"],
    k: Float[Tensor, "*b S K"],
    allowed: Bool[Tensor, "*c S"] | None,
    *,
    bias: Float[Tensor, "*d T S"] | None = None,
    divisor: float | None = None,
) -> Float[Tensor, "*b T S"]:
    """a_ij of the allowed pairs (None: all), zero elsewhere."""
    scores = q @ k.mT
    scores = scores if bias is None else scores + bias
    n: Any = k.shape[-2]
    if allowed is not None:
        # Before they are squared: a hidden score may be large.
        scores = torch.where(allowed, scores, 0)
        n = allowed.sum(-1, keepdim=True).clamp_min(1)
    return scores.relu().square() / (n if divisor is None else divisor)
