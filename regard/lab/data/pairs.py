"""Pairs of texts: what translation, summaries and dialogue are learned from."""

from collections.abc import Iterable
from typing import NamedTuple

from regard.lab.data.splits import Split, split_of


class Pair(NamedTuple):
    """Pairs of one group (a file, a package, a chapter) stay in one split.

    links: (word of the source, word of the target) that belong together, where people have aligned them; words are
    separated by spaces and counted from 0.
    """

    source: str
    target: str
    group: str
    links: tuple[tuple[int, int], ...] = ()


def unique(pairs: Iterable[Pair]) -> list[Pair]:
    """The first pair of each source, compared without case and spacing: no test text was trained on."""
    seen: dict[str, Pair] = {}
    for pair in pairs:
        seen.setdefault(key_of(pair), pair)
    return list(seen.values())


def key_of(pair: Pair) -> str:
    return " ".join(pair.source.casefold().split())


def split_pairs(pairs: Iterable[Pair]) -> dict[Split, list[Pair]]:
    """Eight groups in ten train, one is for validation, one for the test: decided by the group's name alone."""
    parts: dict[Split, list[Pair]] = {"train": [], "valid": [], "test": []}
    for pair in pairs:
        parts[split_of(pair.group)].append(pair)
    return parts
