"""The folder of fetched packages, and the check of its files."""

import os
from pathlib import Path

from regard.core import MissingDataError, StoredDataError
from regard.lab.data.archives import Archive, joined, open_archive
from regard.lab.data.files import file_sha256
from regard.lab.data.sources.source import Package, Source


def cache_folder() -> Path:
    """$REGARD_DATA, or ~/.cache/regard."""
    chosen = os.environ.get("REGARD_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "regard"


def stored_at(package: Package) -> Path:
    return cache_folder() / "packages" / package.file


def missing(source: Source) -> list[Package]:
    """The packages that are not in the cache; what is there is not read."""
    return [package for package in source.packages if not stored_at(package).is_file()]


def check(package: Package, path: Path) -> None:
    """Raises StoredDataError where size or SHA-256 is not the recorded one."""
    size = path.stat().st_size
    found = file_sha256(path)
    if (size, found) != (package.bytes, package.sha256):
        raise StoredDataError(
            f"{path} is not {package.name} {package.version} as it was recorded: "
            f"expected {package.bytes} bytes with SHA-256 {package.sha256}, found {size} with {found}. "
            "Delete the file and fetch it again."
        )


def open_source(source: Source) -> Archive:
    """Its files, checked. Raises MissingDataError and StoredDataError."""
    if absent := missing(source):
        first = absent[0]
        raise MissingDataError(
            f"{source.name} is not on this machine: {first.name} {first.version} is not in "
            f"{stored_at(first).parent}. Fetch it with `{source.get_command}` "
            f"({source.megabytes:.1f} MB; {source.terms})."
        )
    parts = []
    for package in source.packages:
        path = stored_at(package)
        check(package, path)
        parts.append(open_archive(path, package.name))
    return parts[0] if len(parts) == 1 else joined(source.name, parts)
