"""Sources of real data: `archive(name)` opens one, `regard data get NAME` fetches it."""

from regard.lab.data.archives import Archive
from regard.lab.data.sources.cache import cache_folder, missing, open_source
from regard.lab.data.sources.fetch import check_licence, get
from regard.lab.data.sources.source import LICENCES, Package, Source
from regard.lab.data.sources.table import SOURCES


def archive(name: str) -> Archive:
    """The files of a source. Raises UnknownNameError, MissingDataError (with the command that fetches it), StoredDataError."""
    return open_source(SOURCES[name])


__all__ = [
    "LICENCES",
    "SOURCES",
    "Archive",
    "Package",
    "Source",
    "archive",
    "cache_folder",
    "check_licence",
    "get",
    "missing",
]
