"""Bibles: as Python source by chapter, as SWORD modules by verse, and with words aligned by hand."""

import ast
import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from regard.lab.data.archives import Archive
from regard.lab.data.pairs import Pair

_HTML_FILE = "/html_bible.py"


_VERSE = re.compile(r"<sup>(\d+)</sup>")


_PARAGRAPH_TAG = re.compile(r"</?p>")


_MARK = re.compile(r"\\(?:\d+:\d+\\)?")


def read_chapters(archive: Archive) -> dict[tuple[int, int], str]:
    """The same chapter in two Bibles: pairs of long documents with the same meaning in other words.

    The packages hold a Bible as Python source: one call whose arguments are the version, the text, and tables of where each verse
    starts and ends, by number (book 1,000,000 + chapter 1,000 + verse). The literals are read; nothing is run. The table of
    the Bible in Basic English is wrong from Genesis on, by more and more characters, so chapters are cut at the verse numbers
    in the text; of the table only the books and their chapters are used. In that Bible Isaiah 64 is torn in two
    after its first verse, and made one again here. Marks of other numberings, \43:2\, are taken out.

    In the Psalms and some other places the two Bibles number verses apart, and a chapter may begin a few verses sooner in one.

    (book, chapter) -> its verses, a line each.
    """
    text, numbers = _literals(archive)
    places = sorted({number // 1000 for number in numbers})
    cut = _cut_chapters(text)
    chapters: dict[tuple[int, int], list[str]] = {}
    key = (0, 0)
    for place, verses in zip(places, cut, strict=True):
        book = place // 1000
        if _MARK.match(verses[0]) and len(chapters.get(key, ())) == 1:
            chapters[key] += verses
        else:
            key = (book, key[1] + 1 if key[0] == book else 1)
            chapters[key] = verses
    return {
        key: "\n".join(" ".join(_MARK.sub("", verse).split()) for verse in verses)
        for key, verses in chapters.items()
    }


def _cut_chapters(text: str) -> list[list[str]]:
    """Verses by chapter; a chapter begins at each verse 1."""
    pieces = _VERSE.split(text)
    chapters: list[list[str]] = []
    for number, verse in zip(pieces[1::2], pieces[2::2], strict=True):
        if number == "1":
            chapters.append([])
        chapters[-1].append(_PARAGRAPH_TAG.sub(" ", verse).strip())
    return chapters


def _literals(archive: Archive) -> tuple[str, Mapping[int, int]]:
    """The text with its verse numbers, and the table of starts."""
    (name,) = (name for name in archive.names() if name.endswith(_HTML_FILE))
    assigned = (node for node in ast.parse(archive.read(name)).body if isinstance(node, ast.Assign))
    call = next(node.value for node in assigned if isinstance(node.value, ast.Call))
    text, starts = (ast.literal_eval(argument) for argument in call.args[1:3])
    return text.strip(), starts


_CHAPTER_DIGITS = 5
"""Digits of a verse's name, as in 40001001, that name book and chapter."""


class _Word(NamedTuple):
    identity: str
    text: str


def read_aligned_verses(source: str, target: str, alignment: str) -> list[Pair]:
    """Verses of two languages with the words that people linked (the format of Clear Bible's alignments).

    Of two tables of words and the JSON records between them: the words of each verse joined by spaces, and their links.

    Words that the tables exclude (punctuation marks) and verses without a link are left out; a chapter is a group.

    A record links every word that it names on one side with every one on the other; a link that leaves its verse is
    dropped.
    """
    words: dict[str, list[_Word]] = defaultdict(list)
    others: dict[str, list[_Word]] = defaultdict(list)
    for row in _rows(source):
        words[row["id"][-11:][:8]].append(_Word(row["id"], row["text"]))
    for row in _rows(target):
        if not row["exclude"]:
            others[row["source_verse"]].append(_Word(row["id"], row["text"]))
    links = defaultdict(set)
    for record in json.loads(alignment)["records"]:
        for one in record["source"]:
            links[one].update(record["target"])
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
    return Pair(source, target, name[:_CHAPTER_DIGITS], tuple(found))


def _rows(table: str) -> csv.DictReader:
    return csv.DictReader(table.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
