"""Sources of real data: `archive(name)` opens one, `regard data get NAME` fetches it."""

from regard.lab.data.sources.fetch import Files, open_source
from regard.lab.data.sources.table import SOURCES


def archive(name: str) -> Files:
    """Name -> content of the files of a source, in the order of the names. Raises UnknownNameError, MissingDataError (with the command that fetches it), StoredDataError."""
    return open_source(SOURCES[name])
