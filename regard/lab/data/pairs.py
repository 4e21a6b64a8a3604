"""Pairs of texts: what translation, summaries and dialogue are learned from."""

from collections.abc import Iterable
from typing import NamedTuple

from regard.lab.data.splits import SPLITS, Split, first_of_each, spaced, split_of


class Pair(NamedTuple):
    """Pairs of one group (a file, a package, a chapter) stay in one split.

    links: (word of the source, word of the target) that belong together, where people have aligned them; words are
    separated by spaces and counted from 0.
    """

    source: str
    target: str
    group: str
    links: tuple[tuple[int, int], ...] = ()


Parts = dict[Split, list[Pair]]


def key_of(pair: Pair) -> str:
    """The source without case and spacing: no test text was trained on."""
    return spaced(pair.source.casefold())


def split_pairs(pairs: Iterable[Pair]) -> Parts:
    """The first pair of each source; eight groups in ten train, one is for validation, one for the test, by the group's name alone."""
    parts: Parts = {split: [] for split in SPLITS}
    for pair in first_of_each(pairs, key_of):
        parts[split_of(pair.group)].append(pair)
    return parts
