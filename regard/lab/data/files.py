"""Locks and hashes; what makes files whole is in `regard.core.files`."""

import hashlib
from pathlib import Path

from filelock import FileLock

from regard.core.files import (
    PARTIAL,
    check_writable,
    into_place,
    number_in,
    path_error,
    reported,
    whole,
)

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


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
