"""Interface texts and their translations: gettext catalogues, compiled (.mo) or as source (.po)."""

import ast
import re
from collections.abc import Iterable, Iterator
from gettext import GNUTranslations
from io import BytesIO

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.pairs import Pair

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
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
            entries = read_po(archive.read(name).decode("utf-8"))
        elif name.endswith(".mo") and f"{name.removesuffix('.mo')}.po" not in names:
            entries = read_mo(archive.read(name), name)
        else:
            continue
        pairs += clean(entries, folder.sub("/", name).rpartition(".")[0])
    return pairs


def read_mo(content: bytes, name: str) -> Iterator[tuple[str, str]]:
    """(text, translation) of a compiled catalogue. Raises StoredDataError."""
    try:
        catalogue = GNUTranslations(BytesIO(content))._catalog  # type: ignore[attr-defined]
    except (OSError, UnicodeError) as error:
        raise StoredDataError(f"{name} is no compiled gettext catalogue: {error}") from None
    for text, translation in catalogue.items():
        if isinstance(text, str) and text:
            yield text.rpartition("\x04")[2], translation


def read_po(content: str) -> Iterator[tuple[str, str]]:
    """(text, translation) of a catalogue's source. A comment "Default:" holds the text where the msgid is a mere name."""
    for block in re.split(r"\n\s*\n", content.replace("\r\n", "\n")):
        fields: dict[str, str] = {}
        flags, default, field = "", "", ""
        for line in block.split("\n"):
            if line.startswith("#,"):
                flags += line
            elif line.startswith("#. Default:"):
                default = _unquoted(line.removeprefix("#. Default:"))
            elif line.startswith("#"):
                continue
            else:
                name = re.match(r"msg\w+(?:\[\d\])?", line)
                field = name.group() if name else field
                fields[field] = fields.get(field, "") + _unquoted(line)
        text, translation = default or fields.get("msgid", ""), fields.get("msgstr", "")
        if text and translation and "fuzzy" not in flags:
            yield text, translation


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


def _unquoted(line: str) -> str:
    """The strings on a line, read as C and Python read them alike."""
    try:
        return "".join(ast.literal_eval(part) for part in _QUOTED.findall(line))
    except (SyntaxError, ValueError):
        return ""
