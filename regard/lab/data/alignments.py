"""Verses of two languages with the words that people linked (the format of Clear Bible's alignments)."""

import csv
import json
from collections import defaultdict
from typing import NamedTuple

from regard.core import StoredDataError
from regard.lab.data.pairs import Pair

_CHAPTER = 5
"""Digits of a verse's name, as in 40001001, that name book and chapter."""


class _Word(NamedTuple):
    identity: str
    text: str


def read_aligned_verses(source: str, target: str, alignment: str) -> list[Pair]:
    """Of two tables of words and the JSON records between them: the words of each verse joined by spaces, and their links.

    Words that the tables exclude (punctuation marks) and verses without a link are left out; a chapter is a group.

    A record links every word that it names on one side with every one on the other; a link that leaves its verse is
    dropped. Raises StoredDataError where a table or the records lack what is read of them.
    """
    words: dict[str, list[_Word]] = defaultdict(list)
    others: dict[str, list[_Word]] = defaultdict(list)
    try:
        for row in _rows(source):
            words[row["id"][-11:][:8]].append(_Word(row["id"], row["text"]))
        for row in _rows(target):
            if not row["exclude"]:
                others[row["source_verse"]].append(_Word(row["id"], row["text"]))
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
    pairs = (
        _pair(name, words[name], others[name], links)
        for name in sorted(words.keys() & others.keys())
    )
    return [pair for pair in pairs if pair.links]


def _pair(name: str, words: list[_Word], others: list[_Word], links: dict[str, set[str]]) -> Pair:
    place = {other.identity: j for j, other in enumerate(others)}
    found = sorted(
        (i, place[other])
        for i, word in enumerate(words)
        for other in links.get(word.identity, ())
        if other in place
    )
    source, target = (" ".join(word.text for word in side) for side in (words, others))
    return Pair(source, target, name[:_CHAPTER], tuple(found))


def _rows(table: str) -> csv.DictReader:
    return csv.DictReader(table.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
