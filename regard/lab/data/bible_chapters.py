"""The same chapter in two Bibles: pairs of long documents that say the same in other words.

The packages hold a Bible as Python source: one call whose arguments are the version, the text, and tables of where each verse
starts and ends, by number (book 1,000,000 + chapter 1,000 + verse). The literals are read; nothing is run. The table of
the Bible in Basic English is wrong from Genesis on, by more and more characters, so chapters are cut at the verse numbers
that stand in the text; of the table only the books and their chapters are used. In that Bible Isaiah 64 is torn in two
after its first verse, and made one again here. Marks of other numberings, \\43:2\\, are taken out.

In the Psalms and some other places the two Bibles number verses apart, and a chapter may begin a few verses sooner in one.
"""

import ast
import re
from collections.abc import Mapping

from regard.core import StoredDataError
from regard.lab.data.archives import Archive

_FILE = "/html_bible.py"
_VERSE = re.compile(r"<sup>(\d+)</sup>")
_TAG = re.compile(r"</?p>")
_MARK = re.compile(r"\\(?:\d+:\d+\\)?")


def read_chapters(archive: Archive) -> dict[tuple[int, int], str]:
    """(book, chapter) -> its verses, a line each. Raises StoredDataError."""
    text, numbers = _literals(archive)
    places = sorted({number // 1000 for number in numbers})
    cut = _cut(text)
    if len(cut) != len(places):
        raise StoredDataError(
            f"{archive.label}: the text has {len(cut)} chapters, the table {len(places)}"
        )
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


def count_chapters(archive: Archive) -> Mapping[str, int]:
    chapters = read_chapters(archive)
    return {
        "books": len({book for book, _ in chapters}),
        "chapters": len(chapters),
        "verses": sum(text.count("\n") + 1 for text in chapters.values()),
        "characters": sum(map(len, chapters.values())),
    }


def _cut(text: str) -> list[list[str]]:
    """Verses by chapter; a chapter begins at each verse 1."""
    pieces = _VERSE.split(text)
    chapters: list[list[str]] = []
    for number, verse in zip(pieces[1::2], pieces[2::2], strict=True):
        if number == "1":
            chapters.append([])
        chapters[-1].append(_TAG.sub(" ", verse).strip())
    return chapters


def _literals(archive: Archive) -> tuple[str, Mapping[int, int]]:
    """The text with its verse numbers, and the table of starts."""
    try:
        (name,) = (name for name in archive.names() if name.endswith(_FILE))
        calls = [
            node.value
            for node in ast.parse(archive.read(name).decode()).body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        ]
        text, starts = (ast.literal_eval(argument) for argument in calls[0].args[1:3])
        return text.strip(), dict(starts)
    except (SyntaxError, ValueError, LookupError, TypeError) as error:
        raise StoredDataError(f"{archive.label} is no Bible as recorded: {error!r}") from None
