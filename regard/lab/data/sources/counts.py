"""Counts for sources whose parsers live elsewhere: lines of tables, verses of a module, pairs of a catalogue."""

import gzip
from collections.abc import Callable, Mapping
from io import BytesIO
from zipfile import ZipFile

from regard.lab.data.archives import Archive
from regard.lab.data.bibles import read_verses
from regard.lab.data.gettext_catalogues import read_catalogues
from regard.lab.data.pairs import unique

Count = Callable[[Archive], Mapping[str, int]]


def rows_of(**paths: str) -> Count:
    """Lines of each file that are not empty, the head included; .gz and .zip are unpacked."""

    def count(archive: Archive) -> Mapping[str, int]:
        return {name: _lines(archive.read(path), path) for name, path in paths.items()}

    return count


def count_verses(archive: Archive) -> Mapping[str, int]:
    return {"verses": len(read_verses(archive))}


def count_messages(archive: Archive) -> Mapping[str, int]:
    """Pairs with English: of each text one."""
    return {
        name: len(unique(read_catalogues(archive, language)))
        for name, language in (("German", "de"), ("French", "fr"))
    }


def _lines(content: bytes, path: str) -> int:
    if path.endswith(".gz"):
        content = gzip.decompress(content)
    elif path.endswith(".zip"):
        with ZipFile(BytesIO(content)) as file:
            content = file.read(file.namelist()[0])
    return sum(bool(line.strip()) for line in content.splitlines())
