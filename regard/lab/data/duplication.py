"""Duplication: say a sequence again (Kitaev et al. 2020, arXiv 2001.04451).

    s w s w        s: token 1; w: drawn anew for each row from the other tokens

What follows is asked for in the second half alone. As in the paper, except that the separator is not token 0, which is
padding here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes

IGNORED = -100
SEPARATOR = 1


class Duplications(NamedTuple):
    tokens: NDArray[np.integer]  # [n length]
    labels: NDArray[
        np.integer
    ]  # [n length]: the token after each of the second half, -100 elsewhere


def generate_duplications(count: int, *, length: int, vocab_size: int, seed: int) -> Duplications:
    """`length` counts the tokens that are read: all of s w s w but the last."""
    check_sizes("duplication", count=count)
    check_seed("duplication", seed)
    check_duplication(length, vocab_size)
    half = (length + 1) // 2
    rng = np.random.default_rng(seed)
    once = rng.integers(SEPARATOR + 1, vocab_size, (count, half))
    once[:, 0] = SEPARATOR
    whole = np.concatenate([once, once], axis=1)
    labels = whole[:, 1:].copy()
    labels[:, :half] = IGNORED
    return Duplications(whole[:, :-1], labels)


def check_duplication(length: int, vocab_size: int) -> None:
    """Raise OptionError unless both halves have a word to say."""
    check_sizes("duplication", length=length, vocab_size=vocab_size)
    if length < 3 or length % 2 == 0:
        raise OptionError(
            f"duplication: length ({length}) must be odd and at least 3: twice a separator and a sequence, less the last"
        )
    if vocab_size < 4:
        raise OptionError(
            f"duplication: vocab_size ({vocab_size}) must be at least 4: padding, the separator and two tokens to say"
        )
