"""The same chapter in two Bibles: pairs of long documents that say the same in other words.

The packages hold a Bible as Python source: one call whose arguments are the version, the text, the start of each verse and
its end, by number (book 1,000,000 + chapter 1,000 + verse). The literals are read; nothing is run.
"""

import ast
from collections.abc import Mapping

from regard.core import StoredDataError
from regard.data.archives import Archive


def read_verse_numbers(archive: Archive) -> dict[int, str]:
    """1001001 -> "In the beginning God created the heaven and the earth." Raises StoredDataError."""
    (name,) = (name for name in archive.names() if name.endswith("/plain_text_readers_bible.py"))
    try:
        calls = [
            node.value
            for node in ast.parse(archive.read(name).decode()).body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        ]
        text, starts, ends = (ast.literal_eval(argument) for argument in calls[0].args[1:4])
        verses = {number: text[start : ends[number]] for number, start in starts.items()}
    except (SyntaxError, ValueError, LookupError, TypeError) as error:
        raise StoredDataError(
            f"{archive.label}: {name} is no Bible as recorded: {error!r}"
        ) from None
    return {number: " ".join(verse.split()) for number, verse in verses.items() if verse.strip()}


def read_chapters(archive: Archive) -> dict[tuple[int, int], str]:
    """(book, chapter) -> its verses, a line each."""
    chapters: dict[tuple[int, int], list[str]] = {}
    for number, verse in read_verse_numbers(archive).items():
        book, place = divmod(number, 1_000_000)
        chapters.setdefault((book, place // 1000), []).append(verse)
    return {key: "\n".join(verses) for key, verses in chapters.items()}


def count_chapters(archive: Archive) -> Mapping[str, int]:
    chapters = read_chapters(archive)
    return {
        "books": len({book for book, _ in chapters}),
        "chapters": len(chapters),
        "verses": sum(text.count("\n") + 1 for text in chapters.values()),
        "characters": sum(map(len, chapters.values())),
    }
