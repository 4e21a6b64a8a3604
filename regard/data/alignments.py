"""Verses of two languages with the words that people linked (the format of Clear Bible's alignments)."""

import csv
import json
from collections import defaultdict
from typing import NamedTuple

from regard.core import StoredDataError


class AlignedVerse(NamedTuple):
    verse: str  # book, chapter and verse: "40001001"
    source: tuple[str, ...]
    target: tuple[str, ...]  # words alone: punctuation marks are excluded by the format
    links: tuple[tuple[int, int], ...]  # (word of the source, word of the target), counted from 0

    @property
    def chapter(self) -> str:
        return self.verse[:5]


def read_aligned_verses(source: str, target: str, alignment: str) -> list[AlignedVerse]:
    """Of two tables of words and the JSON records between them. Verses without a link or a word are left out.

    A record links every word that it names on one side with every one on the other; a link that leaves its verse is
    dropped. Raises StoredDataError where a table or the records lack what is read of them.
    """
    words: dict[str, list[tuple[str, str]]] = defaultdict(list)
    others: dict[str, list[tuple[str, str]]] = defaultdict(list)
    try:
        for row in _rows(source):
            words[row["id"][-11:][:8]].append((row["id"], row["text"]))
        for row in _rows(target):
            if not row["exclude"]:
                others[row["source_verse"]].append((row["id"], row["text"]))
        records = [
            (record["source"], record["target"]) for record in json.loads(alignment)["records"]
        ]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise StoredDataError(
            f"these are no word tables with alignment records: {error!r}"
        ) from None
    links = defaultdict(set)
    for ours, theirs in records:
        for one in ours:
            links[one].update(theirs)
    return [
        verse
        for name in sorted(words.keys() & others.keys())
        if (verse := _verse(name, words[name], others[name], links)).links
    ]


def _verse(
    name: str,
    words: list[tuple[str, str]],
    others: list[tuple[str, str]],
    links: dict[str, set[str]],
) -> AlignedVerse:
    place = {identity: j for j, (identity, _) in enumerate(others)}
    found = sorted(
        (i, place[other])
        for i, (identity, _) in enumerate(words)
        for other in links.get(identity, ())
        if other in place
    )
    return AlignedVerse(
        name, tuple(word for _, word in words), tuple(word for _, word in others), tuple(found)
    )


def _rows(table: str) -> csv.DictReader:
    return csv.DictReader(table.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
