"""Packages read as archives: a wheel, a source archive, a Debian package, a folder or a single file.

Nothing is installed, unpacked to disk or imported. `names()` lists the regular files (no symbolic links), `read(name)`
returns the bytes of one.
"""

import lzma
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path

from regard.core import StoredDataError, UnknownNameError
from regard.lab.data.received import ALWAYS, MOST_INFLATION, check_inflation

_DAMAGED = (zlib.error, lzma.LZMAError)
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60  # name 16, time 12, owner 6, group 6, mode 8, size 10, two bytes of end


class Archive(ABC):
    """Files by name; `label` names their origin in errors."""

    label: str

    @abstractmethod
    def names(self) -> list[str]:
        """Names of the regular files, sorted."""

    @abstractmethod
    def _content(self, name: str) -> bytes: ...

    def read(self, name: str) -> bytes:
        """Raises UnknownNameError."""
        if name not in self._known:
            raise UnknownNameError(f"file of {self.label}", name, self.names()[:20])
        return self._content(name)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names())


class Zip(Archive):
    """A wheel, or any other zip file."""

    def __init__(self, path: Path):
        self.label = path.name
        try:
            self._file = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise StoredDataError(f"{path} cannot be read as a zip file: {error}") from None

    def names(self) -> list[str]:
        return sorted(name for name in self._file.namelist() if not name.endswith("/"))

    def _content(self, name: str) -> bytes:
        about = self._file.getinfo(name)
        check_inflation(f"{self.label}: {name}", about.compress_size, about.file_size)
        if about.flag_bits & 1:
            raise StoredDataError(
                f"{self.label}: {name} is encrypted, and no password is known here"
            )
        try:
            return self._file.read(name)
        except (zipfile.BadZipFile, EOFError, OSError, *_DAMAGED) as error:
            raise StoredDataError(f"{self.label}: {name} cannot be unpacked: {error}") from None
        except (NotImplementedError, RuntimeError) as error:  # a method that this Python lacks
            raise StoredDataError(f"{self.label}: {name} cannot be unpacked: {error}") from None


class Tar(Archive):
    """A compressed tar file, whole in memory from the first question on: its members cannot be reached singly."""

    def __init__(self, label: str, content: Path | bytes):
        self.label = label
        self._source = content

    @cached_property
    def _members(self) -> dict[str, bytes]:
        raw = self._source.read_bytes() if isinstance(self._source, Path) else self._source
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
        except (tarfile.TarError, EOFError, OSError, KeyError, ValueError, *_DAMAGED) as error:
            raise StoredDataError(f"{self.label} cannot be read as a tar file: {error}") from None
        return files

    def names(self) -> list[str]:
        return sorted(self._members)

    def _content(self, name: str) -> bytes:
        return self._members[name]


class Folder(Archive):
    """The files under a folder; names are relative to it, with forward slashes."""

    def __init__(self, path: Path):
        self.label = str(path)
        self._path = path

    def names(self) -> list[str]:
        return sorted(
            path.relative_to(self._path).as_posix()
            for path in self._path.rglob("*")
            if path.is_file()
        )

    def _content(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


class Single(Archive):
    """One file that is no archive, under its own name or another."""

    def __init__(self, path: Path, name: str | None = None):
        self.label = path.name
        self._path, self._name = path, name or path.name

    def names(self) -> list[str]:
        return [self._name]

    def _content(self, name: str) -> bytes:
        return self._path.read_bytes()


class Joined(Archive):
    """Several archives as one; no two may hold the same name."""

    def __init__(self, label: str, parts: Sequence[Archive]):
        self.label = label
        self._parts = parts

    @cached_property
    def _home(self) -> dict[str, Archive]:
        home: dict[str, Archive] = {}
        for part in self._parts:
            for name in part.names():
                assert name not in home, f"{self.label}: {name} is in two packages"
                home[name] = part
        return home

    def names(self) -> list[str]:
        return sorted(self._home)

    def _content(self, name: str) -> bytes:
        return self._home[name].read(name)


def open_archive(path: Path) -> Archive:
    """A folder, .whl, .zip, .tar.gz, .tgz, .deb, or anything else as a single file. Raises StoredDataError."""
    if path.is_dir():
        return Folder(path)
    if path.name.endswith((".whl", ".zip")):
        return Zip(path)
    if path.name.endswith((".tar.gz", ".tgz")):
        return Tar(path.name, path)
    if path.name.endswith(".deb"):
        return Tar(path.name, _deb_data(path))
    return Single(path)


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
