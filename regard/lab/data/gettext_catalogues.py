"""Interface texts and their translations: gettext catalogues, compiled (.mo) or as source (.po)."""

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import polib

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.pairs import Pair

_DEFAULT = re.compile(r'^Default: *"(.+)"', re.MULTILINE)
_ACCELERATOR = re.compile(r"[&_~](?=\w)")


def read_catalogues(archive: Archive, language: str) -> list[Pair]:
    """English -> the language, from every catalogue of it; a catalogue is a group.

    Where a catalogue is there in both forms its source is read. Left out: what is not translated, translations equal to
    their text, plural forms, fuzzy entries, texts without two letters.
    """
    folder = re.compile(rf"(?:^|/){re.escape(language)}(?:_{language.upper()})?/LC_MESSAGES/")
    names = {name for name in archive.names() if folder.search(name)}
    pairs: list[Pair] = []
    for name in sorted(names):
        if name.endswith(".po"):
            entries = read_po(archive.read(name).decode("utf-8"), name)
        elif name.endswith(".mo") and f"{name.removesuffix('.mo')}.po" not in names:
            entries = read_mo(archive.read(name), name)
        else:
            continue
        pairs += clean(entries, folder.sub("/", name).rpartition(".")[0])
    return pairs


def read_mo(content: bytes, name: str) -> Iterator[tuple[str, str]]:
    """(text, translation) of a compiled catalogue. Raises StoredDataError."""
    try:
        catalogue = polib.mofile(content)
    except (OSError, UnicodeError, struct.error) as error:
        raise StoredDataError(f"{name} is no compiled gettext catalogue: {error}") from None
    yield from _entries(catalogue)


def read_po(content: str, name: str) -> Iterator[tuple[str, str]]:
    """(text, translation) of a catalogue's source. Raises StoredDataError."""
    try:
        catalogue = polib.pofile(content)
    except OSError as error:
        raise StoredDataError(f"{name} is no gettext catalogue: {error}") from None
    yield from _entries(catalogue)


def _entries(catalogue: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """A comment "Default:" holds the text where the msgid is a mere name."""
    for entry in catalogue:
        if entry.msgstr and not (entry.msgid_plural or entry.obsolete or "fuzzy" in entry.flags):
            default = _DEFAULT.search(getattr(entry, "comment", ""))
            yield polib.unescape(default.group(1)) if default else entry.msgid, entry.msgstr


def clean(entries: Iterable[tuple[str, str]], group: str) -> Iterator[Pair]:
    for text, translation in entries:
        source, target = (_without_accelerator(part) for part in (text, translation))
        if target and source != target and sum(map(str.isalpha, source)) >= 2:
            yield Pair(source, target, group)


def _without_accelerator(text: str) -> str:
    """ "&Open", "_Open" and "~Open" -> "Open", where there is one such mark and it is no entity or name."""
    found = _ACCELERATOR.findall(text)
    plain = len(found) == 1 and not re.search(r"&\w+;|\w_\w|~/", text)
    return " ".join((_ACCELERATOR.sub("", text) if plain else text).split())
