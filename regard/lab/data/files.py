"""Locks, hashes, and whether a path can be written; what makes files whole is in `regard.core.files`."""

import errno
import hashlib
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from regard.core.files import PARTIAL, into_place, number_in, path_error, reported, whole

__all__ = [
    "PARTIAL",
    "check_writable",
    "file_sha256",
    "into_place",
    "locked",
    "number_in",
    "path_error",
    "reported",
    "whole",
]


def locked(path: Path, *, timeout: float = -1) -> FileLock:
    """One process at a time makes `path`; the others wait `timeout` seconds (-1: for ever). A kill frees the lock.

    Raises filelock.Timeout when it is entered too late.
    """
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=timeout)


def check_writable(path: Path, *, folder: bool = False) -> None:
    """PathError now, rather than after an hour's work, if no file (or folder) can be written at `path`. Leaves nothing."""
    with reported(path):
        if path.is_dir() != folder and path.exists():
            raise OSError(errno.ENOTDIR if folder else errno.EISDIR, "")
        parent = path if folder else path.parent
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        probe = parent / f".{uuid4().hex[:8]}{PARTIAL}"
        try:
            probe.write_bytes(b"\0")
        finally:
            probe.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
