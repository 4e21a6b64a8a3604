"""Who owns a run: one process at a time, on this machine or another that shares the disk; a dead owner's place is free.

On one machine the system's own lock decides (filelock), and a killed owner is found by its number and birth. An owner on
another machine is known by its note beside the run, which it touches every few seconds: a note that was left untouched
for STALE seconds is of a dead owner.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

from filelock import Timeout

from regard.core import OptionError
from regard.lab.data.files import PARTIAL, locked, reported, whole

BEAT, STALE = 5.0, 90.0  # seconds
_SETTLE = (
    2.0  # seconds in which two takers of one dead owner's place, on two machines, see each other
)
_ORPHANS = 15.0  # seconds after which a dead owner's helper processes have ended


@dataclass(frozen=True)
class Owner:
    """A process. `space` is the machine since its last start, down to the container: where `pid` means something."""

    host: str
    space: str
    pid: int
    born: str
    since: str

    @classmethod
    def here(cls) -> "Owner":
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return cls(socket.gethostname(), _space(), os.getpid(), _born(os.getpid()) or "", now)

    @classmethod
    def of_text(cls, text: str) -> "Owner | None":
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def near(self) -> bool:
        """True on this machine, where `gone` knows."""
        return self.space == _space()

    @property
    def gone(self) -> bool:
        """True if this process of this machine has ended, whatever has its number now."""
        born = _born(self.pid)
        return born is None or born != self.born

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def owned(path: Path, *, wait: bool = False) -> Iterator[None]:
    """This process owns `path` in the block. Raises OptionError, which names the owner, or waits for it to end."""
    lock, note = locked(path), path.with_name(f".{path.name}.owner")
    with reported(path):
        for seconds in (-1,) if wait else (0, _ORPHANS):
            try:
                lock.acquire(timeout=seconds)
                break
            except Timeout:
                other = _read(note)
                if seconds or other is None or not (other.near and other.gone):
                    raise _refusal(path, other) from None
    with lock:
        with reported(path):
            mine = _noted(path, note, wait)
        try:
            with beating(lambda: os.utime(note)):
                yield
        finally:
            if _read(note) == mine:
                note.unlink(missing_ok=True)


@contextmanager
def beating(beat: Callable[[], None]) -> Iterator[None]:
    """Calls `beat` every BEAT seconds during the block, from a thread; a beat that fails is left out."""
    done = Event()

    def run() -> None:
        while not done.wait(BEAT):
            with suppress(
                Exception
            ):  # a full disk: the next may succeed, others wait STALE seconds
                beat()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _noted(path: Path, note: Path, wait: bool) -> Owner:
    """Writes the note. The lock is ours: the owner of a note that is there already is dead, or on another machine."""
    mine = Owner.here()
    while True:
        other = _read(note)
        far = other is not None and not other.near
        if not far or _age(note) > STALE:
            break
        if not wait:
            raise _refusal(path, other)
        time.sleep(BEAT)
    with whole(note) as partial:
        partial.write_text(mine.text)
    if far:
        time.sleep(_SETTLE)
        if (winner := _read(note)) != mine:
            raise _refusal(path, winner)
    return mine


def _refusal(path: Path, owner: Owner | None) -> OptionError:
    who = str(owner) if owner else "another process"
    return OptionError(
        f"run_dir {path.parent}: another process trains here ({who}). Wait for it (`--wait` does), stop it, "
        "or pass another folder."
    )


def _read(note: Path) -> Owner | None:
    try:
        return Owner.of_text(note.read_text())
    except OSError:
        return None


def _age(note: Path) -> float:
    """Seconds since the last touch by the clock of the disk, which both machines share."""
    probe = note.with_name(f"{note.name}.{uuid4().hex[:8]}{PARTIAL}")
    try:
        probe.touch()
        return probe.stat().st_mtime - note.stat().st_mtime
    except FileNotFoundError:  # the owner has ended
        return STALE + 1
    finally:
        probe.unlink(missing_ok=True)


@cache
def _space() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):  # not Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _born(pid: int) -> str | None:
    """When a process of this machine began, in the system's own count; None where it has ended, "" where none is kept."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (OSError, LookupError, ValueError):
        pass
    try:
        os.kill(pid, 0)
    except OSError as error:
        return None if isinstance(error, ProcessLookupError) else ""
    return ""
