"""Bibles as SWORD modules: compressed blocks of verses in OSIS markup (zText of the CrossWire project).

    .bzs  where each block lies in .bzz: offset, size, size when unpacked      .bzv  of each verse: block, offset, size

Verses stand in the order of the module's versification, chapters and books have entries of their own before them. The
chapters' entries name themselves (osisID), so no table of versifications is needed: a verse is the n-th entry after its
chapter's. Two modules with different versifications agree but for a few verses, which are shifted by one.
"""

import re
import zlib
from collections.abc import Iterator
from html import unescape
from struct import iter_unpack

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.pairs import Pair

_CHAPTER = re.compile(r'<chapter\b[^>]*\bosisID="([^"]+)"[^>]*\bsID=')
_BOOK = re.compile(r'<div\b[^>]*\btype="(?:book|bookGroup|front)"')
_NOTE = re.compile(r"<(note|title|rdg)\b[^>]*(?<!/)>.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_BEFORE_STOP = re.compile(r"\s+([,.;:!?])")


def read_verses(archive: Archive) -> dict[str, str]:
    """ "Gen.1.1" -> the verse's text, notes and markup taken out. Raises StoredDataError where there is no module."""
    verses: dict[str, str] = {}
    roots = sorted(name.removesuffix(".bzs") for name in archive.names() if name.endswith(".bzs"))
    if not roots:
        raise StoredDataError(f"{archive.label} holds no compressed SWORD module (.bzs)")
    for root in roots:
        chapter, number = "", 0
        for entry in _entries(archive, root):
            opened = _CHAPTER.search(entry)
            if opened:
                chapter, number = opened.group(1), 0
            elif _BOOK.search(entry):
                chapter = ""
            elif chapter:
                number += 1
                text = plain(entry)
                if text:
                    verses[f"{chapter}.{number}"] = text
    return verses


def plain(osis: str) -> str:
    """What a reader sees. Notes leave a space: words on both sides of one are not glued together."""
    text = _TAG.sub("", _NOTE.sub(" ", osis))
    return _BEFORE_STOP.sub(r"\1", " ".join(unescape(text).split()))


def verse_pairs(source: dict[str, str], target: dict[str, str]) -> list[Pair]:
    """Verses that both have; the chapter is the group."""
    return [
        Pair(text, target[verse], verse.rpartition(".")[0])
        for verse, text in source.items()
        if verse in target
    ]


def _entries(archive: Archive, root: str) -> Iterator[str]:
    packed = archive.read(f"{root}.bzz")
    blocks = [
        zlib.decompress(packed[offset : offset + size]) if size else b""
        for offset, size, _ in iter_unpack("<III", archive.read(f"{root}.bzs"))
    ]
    for block, start, size in iter_unpack("<IIH", archive.read(f"{root}.bzv")):
        yield blocks[block][start : start + size].decode() if size else ""
