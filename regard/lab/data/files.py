"""Files that are there whole or not at all, and locks for what two processes may want to make at once."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

PARTIAL = ".partial"
"""The suffix of what is not finished; a killed process may leave some behind."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write a file or a folder to. Where the block ends without an error, that becomes `path` in one step.

    >>> with whole(Path("runs/page.html")) as partial:
    ...     partial.write_text(page)

    It is on the disk before it gets its name, so that neither a kill nor a power cut leaves half of it under that name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid4().hex[:8]}{PARTIAL}")
    try:
        yield partial
        into_place(partial, path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink(missing_ok=True)


def into_place(partial: Path, path: Path) -> None:
    """Give a finished file or folder of the same disk its name."""
    inside = partial.iterdir() if partial.is_dir() else ()
    for written in (*inside, partial):
        _sync(written)
    os.replace(partial, path)
    _sync(path.parent)


def locked(path: Path, *, timeout: float = -1) -> FileLock:
    """One process at a time makes `path`; the others wait `timeout` seconds (-1: for ever). A kill frees the lock.

    Raises filelock.Timeout when it is entered too late.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=timeout)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
