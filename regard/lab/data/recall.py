"""Multi-query associative recall (Arora et al. 2023, arXiv 2312.04927): keys with values first, then keys alone.

    k1 v1 k2 v2 ... kn vn   . . k2 v2 . . . k1 v1 . .        each key is asked for once; the value is the label there

A query stands at an even distance g behind the pairs, drawn without replacement with weight (g/2 + 1)^(spread - 1):
small spreads ask early, spread 1 anywhere. The dots are random tokens. Keys and values are disjoint halves of the
vocabulary. As in the paper, except that the dots are never padding (token 0).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes

IGNORED = -100


class Recalls(NamedTuple):
    tokens: NDArray[np.integer]  # [n length]
    labels: NDArray[np.integer]  # [n length]: the value at each asked key, -100 elsewhere


def generate_recall(
    count: int, *, length: int, num_pairs: int, vocab_size: int, spread: float, seed: int
) -> Recalls:
    check_sizes("recall", count=count)
    check_seed("recall", seed)
    check_recall(length, num_pairs, vocab_size, spread)
    rng = np.random.default_rng(seed)
    half = vocab_size // 2
    keys = 1 + rng.random((count, half - 1)).argsort(1)[:, :num_pairs]
    values = rng.integers(half, vocab_size, (count, num_pairs))
    tokens = rng.integers(1, vocab_size, (count, length + 1))
    labels = np.full((count, length), IGNORED)
    tokens[:, 0 : 2 * num_pairs : 2] = keys
    tokens[:, 1 : 2 * num_pairs : 2] = values
    places = 2 * num_pairs + 2 * _without_replacement(
        rng, count, length // 2 - num_pairs, num_pairs, spread
    )
    np.put_along_axis(tokens, places, keys, axis=1)
    np.put_along_axis(tokens, places + 1, values, axis=1)
    np.put_along_axis(labels, places, values, axis=1)
    return Recalls(tokens[:, :length], labels)


def check_recall(length: int, num_pairs: int, vocab_size: int, spread: float) -> None:
    """Raise OptionError unless every key fits in once as a pair and once as a query."""
    check_sizes("recall", length=length, num_pairs=num_pairs, vocab_size=vocab_size)
    if 4 * num_pairs > length:
        raise OptionError(
            f"recall: length ({length}) must be at least 4 * num_pairs ({4 * num_pairs}): pairs, then queries with answers"
        )
    if vocab_size // 2 - 1 < num_pairs:
        raise OptionError(
            f"recall: vocab_size ({vocab_size}) must be at least {2 * num_pairs + 2}, for num_pairs ({num_pairs}) keys"
        )
    if not 0 < spread <= 1:
        raise OptionError(f"recall: spread ({spread!r}) must be above 0 and at most 1")


def _without_replacement(
    rng: np.random.Generator, count: int, places: int, picks: int, spread: float
) -> NDArray[np.integer]:
    """[count picks]; the largest of log weight + Gumbel noise are a weighted draw without replacement."""
    scores = (spread - 1) * np.log(np.arange(1, places + 1)) + rng.gumbel(size=(count, places))
    return (-scores).argsort(1)[:, :picks]
