"""Packages read as archives: a wheel, a source archive, a Debian package or a single file.

Nothing is installed, unpacked to disk or imported. `names()` lists the regular files (no symbolic links), `read(name)`
returns the bytes of one.
"""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path

from regard.core import StoredDataError, UnknownNameError
from regard.lab.data.received import ALWAYS, MOST_INFLATION, check_inflation

_DAMAGED = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)
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
    """A .whl, .zip, .tar.gz, .tgz, .deb, or anything else as a single file, called `name`. Raises StoredDataError."""
    if path.name.endswith((".whl", ".zip")):
        return _zip(path)
    if path.name.endswith((".tar.gz", ".tgz")):
        return _tar(path.name, path.read_bytes())
    if path.name.endswith(".deb"):
        return _tar(path.name, _deb_data(path))
    return Archive(path.name, {name or path.name: path.read_bytes})


def _zip(path: Path) -> Archive:
    try:
        file = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, *_DAMAGED) as error:
        raise StoredDataError(f"{path} cannot be read as a zip file: {error}") from None

    def read(name: str) -> bytes:
        about = file.getinfo(name)
        check_inflation(f"{path.name}: {name}", about.compress_size, about.file_size)
        if about.flag_bits & 1:
            raise StoredDataError(
                f"{path.name}: {name} is encrypted, and no password is known here"
            )
        try:
            return file.read(name)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, *_DAMAGED) as error:
            raise StoredDataError(f"{path.name}: {name} cannot be unpacked: {error}") from None

    return Archive(
        path.name,
        {name: partial(read, name) for name in file.namelist() if not name.endswith("/")},
    )


def _tar(label: str, raw: bytes) -> Archive:
    """Whole in memory: the members of a compressed tar file cannot be reached singly."""
    files: dict[str, bytes] = {}
    room = ALWAYS + MOST_INFLATION * len(raw)
    try:
        with tarfile.open(fileobj=BytesIO(raw)) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.islnk():
                    files[name] = files[member.linkname.removeprefix("./")]
                elif member.isfile():
                    room -= member.size
                    if room < 0:
                        raise tarfile.ReadError(
                            f"it unpacks to over {MOST_INFLATION} times its size"
                        )
                    opened = tar.extractfile(member)
                    assert opened is not None
                    files[name] = opened.read()
    except (tarfile.TarError, KeyError, *_DAMAGED) as error:
        raise StoredDataError(f"{label} cannot be read as a tar file: {error}") from None
    return Archive(label, {name: partial(files.__getitem__, name) for name in files})


def _deb_data(path: Path) -> bytes:
    """A .deb is an `ar` file; its member data.tar.* holds the package's files (deb(5))."""
    for name, content in _ar_members(path):
        if name.startswith("data.tar"):
            if name.endswith(".zst"):
                raise StoredDataError(f"{path.name} holds {name}, and zstd is not read here")
            return content
    raise StoredDataError(f"{path.name} holds no data.tar: it is no Debian package")


def _ar_members(path: Path) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise StoredDataError(f"{path.name} does not begin as a Debian package does")
        while len(header := file.read(_AR_HEADER)) == _AR_HEADER:
            if not header[48:58].strip().isdigit() or not header[:16].isascii():
                raise StoredDataError(f"{path.name} has a damaged head")
            size = int(header[48:58])
            content = file.read(size)
            if len(content) < size:
                raise StoredDataError(f"{path.name} ends too early")
            file.read(size % 2)
            yield header[:16].decode("ascii").rstrip(" /"), content
