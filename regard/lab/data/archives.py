"""Packages read as archives: a wheel, a source archive, a Debian package or a single file.

Nothing is installed, unpacked to disk or imported. `names()` lists the regular files (no symbolic links), `read(name)`
returns the bytes of one. A package is opened only after its size and SHA-256 were found to be those recorded.
"""

import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path

from regard.core import UnknownNameError

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60  # name 16, time 12, owner 6, group 6, mode 8, size 10, two bytes of end


class Archive:
    """Files by name, each read when it is asked for; `label` names their origin in errors."""

    def __init__(self, label: str, files: Mapping[str, Callable[[], bytes]]):
        self.label, self.files = label, files

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        """Raises UnknownNameError."""
        if name not in self.files:
            raise UnknownNameError(f"file of {self.label}", name, self.names()[:20])
        return self.files[name]()


def joined(label: str, parts: list[Archive]) -> Archive:
    """Several archives as one; no two may hold the same name."""
    files: dict[str, Callable[[], bytes]] = {}
    for part in parts:
        assert not files.keys() & part.files.keys(), f"{label}: a name is in two packages"
        files |= part.files
    return Archive(label, files)


def open_archive(path: Path, name: str | None = None) -> Archive:
    """A .whl, .zip, .tar.gz, .tgz, .deb, or anything else as a single file, called `name`."""
    if path.name.endswith((".whl", ".zip")):
        file = zipfile.ZipFile(path)
        return Archive(
            path.name, {n: partial(file.read, n) for n in file.namelist() if n[-1] != "/"}
        )
    if path.name.endswith((".tar.gz", ".tgz")):
        return _tar(path.name, path.read_bytes())
    if path.name.endswith(".deb"):
        return _tar(path.name, _deb_data(path.read_bytes()))
    return Archive(path.name, {name or path.name: path.read_bytes})


def _tar(label: str, raw: bytes) -> Archive:
    """Whole in memory: the members of a compressed tar file cannot be reached singly."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=BytesIO(raw)) as tar:
        for member in tar:
            if (opened := tar.extractfile(member)) and not member.issym():
                files[member.name.removeprefix("./")] = opened.read()
    return Archive(label, {name: partial(files.__getitem__, name) for name in files})


def _deb_data(content: bytes) -> bytes:
    """A .deb is an `ar` file; its member data.tar.* holds the package's files (deb(5))."""
    at = len(_AR_MAGIC)
    while not content.startswith(b"data.tar", at):
        at += _AR_HEADER + (size := int(content[at + 48 : at + 58])) + size % 2
    start = at + _AR_HEADER
    return content[start : start + int(content[at + 48 : at + 58])]
