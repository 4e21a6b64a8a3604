"""A run has one owner: one process at a time, on this machine or another that shares the disk with its locks.

The system's own lock decides (filelock), and ends with the process that holds it. A note beside it tells others who that is.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from regard.core import OptionError
from regard.core.files import reported, whole

_ORPHANS = 15.0  # seconds after which a dead owner's helpers, which hold its lock, have ended


def locked(path: Path, *, timeout: float = -1) -> FileLock:
    """One process at a time makes `path`; the others wait `timeout` seconds (-1: for ever). A kill frees the lock.

    Raises filelock.Timeout when it is entered too late.
    """
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock")
        if not os.path.lexists(lock):  # where no file can be made, filelock would try for ever
            lock.touch()
    return FileLock(lock, timeout=timeout)


@contextmanager
def owned(path: Path, *, wait: bool = False) -> Iterator[None]:
    """This process owns `path` in the block. Raises OptionError, which names the owner, or waits for it to end."""
    lock = locked(path)
    note = path.with_name(f".{path.name}.owner")
    with reported(path):
        for seconds in (-1,) if wait else (0, _ORPHANS):
            try:
                lock.acquire(timeout=seconds)
                break
            except Timeout:
                owner = _read(note)
                if seconds or not _is_gone(owner):
                    who = owner.get("who", "another process")
                    raise OptionError(
                        f"run_dir {path.parent}: another process trains here ({who}). Wait for it (`--wait` does), stop it, or pass another folder."
                    ) from None
    with lock:
        since = datetime.now(UTC)
        who = (
            f"process {os.getpid()} on {socket.gethostname()}, since {since:%Y-%m-%d %H:%M:%S UTC}"
        )
        with reported(path), whole(note) as partial:
            partial.write_text(
                json.dumps({"who": who, "pid": os.getpid(), "space": space()}), "utf-8"
            )
        try:
            yield
        finally:
            note.unlink(missing_ok=True)


def _read(note: Path) -> dict[str, Any]:
    """The owner's note; empty where that cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        if note.is_file() and isinstance(found := json.loads(note.read_text("utf-8")), dict):
            return found
    return {}


def _is_gone(owner: dict[str, Any]) -> bool:
    """True for a process of this machine that has ended."""
    if owner.get("space") != space():
        return False
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    except (OSError, LookupError, TypeError, OverflowError):
        pass
    return False


@cache
def space() -> str:
    """The machine since its last start, down to the container: where the number of a process means something."""
    parts = [socket.gethostname()]
    with suppress(OSError):  # not Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)
