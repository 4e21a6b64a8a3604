"""Files that are there whole or not at all, and what a path that cannot be used is called."""

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import torch

from regard.core.errors import PathError, visible
from regard.core.memory import require_memory

AnyPath = str | os.PathLike[str]

PARTIAL = ".partial"
"""The suffix of what is not finished; a killed process may leave some behind."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write a file or a folder to. Where the block ends without an error, that becomes `path` in one step.

    >>> with whole(Path("runs/page.html")) as partial:
    ...     partial.write_text(page)

    It is on the disk before it gets its name, so that neither a kill nor a power cut leaves half of it under that name.
    Raises PathError where it cannot be written, and where a link, a device or a pipe has the name.
    """
    with reported(path):
        _check_replaced(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.parent / f"{path.name}.{uuid4().hex[:8]}{PARTIAL}"
        try:
            yield partial
            into_place(partial, path)
        finally:
            if partial.is_dir():
                shutil.rmtree(partial)
            else:
                partial.unlink(missing_ok=True)


def check_writable(path: Path, *, folder: bool = False) -> None:
    """PathError now, rather than after an hour's work, if no file (or folder) can be written at `path`. Leaves nothing."""
    with reported(path):
        if folder:  # what is written into it may want UTF-8
            str(path).encode()
        if path.is_dir() != folder and path.exists():
            raise OSError(errno.ENOTDIR if folder else errno.EISDIR, "")
        if not folder:
            _check_replaced(path)
        parent = path if folder else path.parent
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        probe = parent / f".{uuid4().hex[:8]}{PARTIAL}"
        try:
            probe.write_bytes(b"\0")
        finally:
            probe.unlink(missing_ok=True)


def _check_replaced(path: Path) -> None:
    kinds = (stat.S_IFREG, stat.S_IFDIR)
    if os.path.lexists(path) and stat.S_IFMT(path.lstat().st_mode) not in kinds:
        raise OSError("it is no plain file or folder, and those alone are replaced")


def plain(path: Path, *, copies: int = 8) -> Path:
    """The path of a file that ends, and that fits the memory as often as `copies` says (a text: 8).

    Raises PathError where there is none, for a folder, a device and a pipe, OptionError where it is too large.
    """
    with reported(path, "read"):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no plain file")
    size = copies * found.st_size
    require_memory(str(path), "reading it", size, torch.device("cpu"), "Give a smaller one.")
    return path


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def into_place(partial: Path, path: Path) -> None:
    """Give a finished file or folder of the same disk its name."""
    inside = partial.iterdir() if partial.is_dir() else ()
    for written in (*inside, partial):
        _sync(written)
    os.replace(partial, path)
    _sync(path.parent)


@contextmanager
def reported(path: AnyPath, done: str = "written") -> Iterator[None]:
    """An OSError of the block becomes a PathError that names `path` and says why it cannot be `done`; so does a name that is no text."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise path_error(visible(str(path)), None, "its name is not UTF-8", done) from error
    except OSError as error:
        raise path_error(path, error.errno, str(error), done) from error


def path_error(path: AnyPath, number: int | None, said: str, done: str = "written") -> PathError:
    """The error for a number of errno; `said` is used where the number has no sentence of ours."""
    instead = _FREE if number in _FULL else "Name another path, or mend this one."
    why = _WHY.get(number or 0, said)
    return PathError(f"{os.fspath(path)} cannot be {done}: {why}. {instead}")


def number_in(text: str) -> int | None:
    """The errno in the text of another library's error: "... (os error 28)" or "[Errno 28] ..."."""
    found = re.search(r"(?:os error|Errno) (\d+)", text)
    return int(found.group(1)) if found else None


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FREE = "Free some space, then run the same command again: what was finished is kept."
_WHY = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your share of the disk is used up",
    errno.EFBIG: "it is larger than files may be here",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EROFS: "the disk is read-only",
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a file is in the place of a folder",
    errno.EEXIST: "a file is in the place of a folder",
    errno.EISDIR: "a folder is in the place of a file",
    errno.ENOTEMPTY: "a folder that is not empty is in its place",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its symbolic links form a ring",
    errno.EIO: "the disk reports an error",
    errno.EBUSY: "the system uses it",
}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
