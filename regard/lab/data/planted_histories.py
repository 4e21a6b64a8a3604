"""Planted histories: a candidate is liked if its kind is among the kinds of what was seen before.

    kind(i) = i mod num_kinds,   y = [kind(candidate) in {kind(h) for h in history}]

What DIN is for (Zhou et al. 2018, arXiv 1706.06978), with nothing else in it: all items are drawn alike, so that neither
the candidate nor the history tells anything alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes


class PlantedHistories(NamedTuple):
    history: NDArray[np.integer]  # [n length]
    candidate: NDArray[np.integer]  # [n]
    liked: NDArray[np.bool_]  # [n]


def generate_planted_histories(
    count: int, *, length: int = 8, num_items: int = 64, num_kinds: int = 16, seed: int = 0
) -> PlantedHistories:
    """Items are numbers from 0; more rows of a seed begin with the same ones."""
    check_sizes("planted_histories", count=count)
    check_seed("planted_histories", seed)
    check_planted_histories(length, num_items, num_kinds)
    drawn = np.random.default_rng(seed).integers(0, num_items, (count, length + 1))
    history, candidate = drawn[:, :-1], drawn[:, -1]
    liked = (history % num_kinds == candidate[:, None] % num_kinds).any(1)
    return PlantedHistories(history, candidate, liked)


def check_planted_histories(length: int, num_items: int, num_kinds: int) -> None:
    """Raises OptionError unless there are two kinds, and an item of each."""
    check_sizes("planted_histories", length=length, num_items=num_items, num_kinds=num_kinds)
    if not 2 <= num_kinds <= num_items:
        raise OptionError(
            f"planted_histories: num_kinds ({num_kinds}) must be from 2 to num_items ({num_items})"
        )
