"""Bibles: as Python source by chapter, as SWORD modules by verse, and with words aligned by hand."""

import ast
import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping

from regard.lab.data.pairs import Pair

_VERSE = re.compile(r"<sup>(\d+)</sup>")
_PARAGRAPH_TAG = re.compile(r"</?p>")
_MARK = re.compile(r"\\(?:\d+:\d+\\)?")


def read_chapters(archive: Mapping[str, bytes]) -> dict[tuple[int, int], str]:
    """The same chapter in two Bibles: pairs of long documents with the same meaning in other words.

    The packages hold a Bible as Python source: one call whose arguments are the version, the text, and tables of where each verse
    starts and ends, by number (book 1,000,000 + chapter 1,000 + verse). The literals are read; nothing is run. The table of
    the Bible in Basic English is wrong from Genesis on, by more and more characters, so chapters are cut at the verse numbers
    in the text; of the table only the books and their chapters are used. In that Bible Isaiah 64 is torn in two
    after its first verse, and made one again here. Marks of other numberings, \43:2\, are taken out.

    In the Psalms and some other places the two Bibles number verses apart, and a chapter may begin a few verses sooner in one.

    (book, chapter) -> its verses, a line each.
    """
    (name,) = (name for name in archive if name.endswith("/html_bible.py"))
    call = next(
        node.value
        for node in ast.parse(archive[name]).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    )
    text, numbers = (ast.literal_eval(argument) for argument in call.args[1:3])
    cut = list[list[str]]()
    pieces = _VERSE.split(text.strip())
    for number, verse in zip(pieces[1::2], pieces[2::2], strict=True):
        if number == "1":
            cut.append([])
        cut[-1].append(_PARAGRAPH_TAG.sub(" ", verse).strip())
    places = sorted({number // 1000 for number in numbers})
    chapters = dict[tuple[int, int], list[str]]()
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


def read_aligned_verses(archive: Mapping[str, bytes]) -> list[Pair]:
    """Verses of two languages with the words that people linked (the format of Clear Bible's alignments).

    From two tables of words and the JSON records between them: the words of each verse joined by spaces, and their links.

    Words that the tables exclude (punctuation marks) and verses without a link are left out; a chapter is a group.

    A record links every word that it names on one side with every one on the other; a link that leaves its verse is
    dropped.
    """
    words = defaultdict[str, dict[str, str]](dict)  # verse -> name of a word -> the word
    others = defaultdict[str, dict[str, str]](dict)
    for row in _rows(archive["data/sources/SBLGNT.tsv"]):
        words[row["id"][-11:-3]][row["id"]] = row["text"]
    for row in _rows(archive["data/eng/targets/BSB/nt_BSB.tsv"]):
        if not row["exclude"]:
            others[row["source_verse"]][row["id"]] = row["text"]
    links = defaultdict[str, set[str]](set)
    alignment = archive["data/eng/alignments/BSB/SBLGNT-BSB-manual.json"]
    for record in json.loads(alignment)["records"]:
        for one in record["source"]:
            links[one].update(record["target"])
    pairs = []
    for verse in sorted(words.keys() & others.keys()):
        found = tuple(
            (i, j)
            for i, one in enumerate(words[verse])
            for j, other in enumerate(others[verse])
            if other in links[one]
        )
        if found:
            said, meant = (" ".join(side[verse].values()) for side in (words, others))
            pairs.append(Pair(said, meant, verse[:5], found))  # a book and its chapter
    return pairs


def _rows(table: bytes) -> csv.DictReader:
    return csv.DictReader(table.decode().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
