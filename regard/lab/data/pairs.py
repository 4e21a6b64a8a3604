"""Pairs of texts: what translation, summaries and dialogue are learned from."""

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.core import StoredDataError
from regard.lab.data.checks import need_file
from regard.lab.data.received import lines_of
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


def read_parallel(source: Path, target: Path) -> list[tuple[str, str]]:
    """Two files, a sentence a line, line n of one translating line n of the other (as WMT's); empty lines are left out.

    Raises MissingDataError where a file is missing, StoredDataError where one is longer or empty or is not UTF-8.
    """
    for path in (source, target):
        need_file(path, "a text file, a sentence a line")
    pairs = []
    for left, right in zip_longest(lines_of(source), lines_of(target)):
        if left is None or right is None:
            ended, other = (source, target) if left is None else (target, source)
            number, _ = left or right or (1, "")
            raise StoredDataError(
                f"{ended} ends after {number - 1} lines, and {other} goes on: they are no parallel files"
            )
        pair = (" ".join(left[1].split()), " ".join(right[1].split()))
        if all(pair):
            pairs.append(pair)
    if not pairs:
        raise StoredDataError(f"{source} and {target} are empty: they hold no pair")
    return pairs
