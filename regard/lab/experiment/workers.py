"""Which worker does which trial: what several processes on one ledger share their work by.

A claim is a row of a database beside the ledger, and is lost with its owner: a trial whose worker was killed is done by
another. It says who is at work, never what was done; the ledger alone holds results, and this file may be removed.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core import StoredDataError
from regard.lab.data.owners import STALE, Owner, beating
from regard.lab.experiment.ledger import BUSY_SECONDS, failure

_SCHEMA = """CREATE TABLE IF NOT EXISTS claims
    (key TEXT PRIMARY KEY, owner TEXT NOT NULL, alone INTEGER NOT NULL, beat INTEGER NOT NULL)"""


POLL = 0.5  # seconds between looks at what other processes do


@dataclass(frozen=True, kw_only=True)
class Job:
    """A piece of work that one process claims."""

    key: str
    what: str
    found: Callable[[], bool]  # notes the results if the ledger has them
    make: Callable[[Any], Any]  # what is computed of `data`; both may travel to another machine
    keep: Callable[[Any], None]  # what is done with it here
    data: Any = None
    alone: bool = False  # on this machine


class Claims:
    """Claims on the trials of the ledger at `ledger`. Raises PathError where the file cannot be written."""

    def __init__(self, ledger: Path):
        self.path = ledger.with_name(f".{ledger.name}.claims")
        self.owner = Owner.here()
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}

    @contextmanager
    def claim(self, key: str, *, alone: bool = False) -> Iterator[Owner | None]:
        """None: in the block the trial is this process's. Otherwise its owner, at whom the claim failed.

        alone: for timings. It is given only while no other process of this machine has a claim, and none is given to them
        until it ends.
        """
        holder = self._take(key, alone)
        if holder is not None:
            yield holder
            return
        try:
            with beating(lambda: self._do("UPDATE claims SET beat = beat + 1 WHERE key = ?", key)):
                yield None
        finally:
            self._do("DELETE FROM claims WHERE key = ? AND owner = ?", key, self.owner.text)

    def _take(self, key: str, alone: bool) -> Owner | None:
        with self._opened() as database:
            for held, text, theirs_alone, beat in database.execute("SELECT * FROM claims"):
                owner = Owner.of_text(text)
                if owner is None or self._dead(held, owner, beat):
                    database.execute("DELETE FROM claims WHERE key = ?", (held,))
                elif held == key:
                    return owner
                elif owner.near and owner != self.owner and (alone or theirs_alone):
                    return owner
            row = (key, self.owner.text, alone, 0)
            database.execute("INSERT INTO claims VALUES (?, ?, ?, ?)", row)
        return None

    def _dead(self, key: str, owner: Owner, beat: int) -> bool:
        """On this machine: its process has ended. On another: its count has not changed while we watched for STALE seconds."""
        if owner.near:
            return owner.gone
        now = time.monotonic()
        last, since = self._seen.get((key, owner.text), (None, now))
        if last != beat:
            since = now
        self._seen[key, owner.text] = (beat, since)
        return now - since > STALE

    def _do(self, statement: str, *values: str) -> None:
        with self._opened() as database:
            database.execute(statement, values)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """One transaction; a connection of its own, because the heartbeat comes from another thread."""
        try:
            with closing(
                sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            ) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(_SCHEMA)
                try:
                    yield database
                finally:
                    database.execute("COMMIT")
        except sqlite3.Error as error:
            raise failure(self.path, error) or _damaged(self.path, error) from error


def share(
    jobs: Iterable[Job],
    claims: Claims,
    doing: Callable[[str], AbstractContextManager[object]],
    late: Callable[[], bool] = lambda: False,
) -> int:
    """Does each job that nobody has done or is doing, then waits for what others are doing; a dead worker's job is free.

    Each is done by one of the processes that share the claims, and all return when all is done. `doing` shows what is done.
    Once it is `late`, nothing more is begun or waited for. Returns how many jobs were left.
    """
    waiting, left = list(jobs), 0
    while waiting:
        busy = []
        for job in waiting:
            if job.found():
                continue
            if late():
                left += 1
                continue
            with claims.claim(job.key, alone=job.alone) as holder:
                if holder is not None:
                    busy.append((job, holder))
                elif not job.found():  # another may have ended between
                    with doing(job.what):
                        job.keep(job.make(job.data))
        if busy and len(busy) == len(waiting):
            job, holder = busy[0]
            with doing(f"waiting for {holder} ({job.what})"):
                time.sleep(POLL)
        waiting = [job for job, _ in busy]
    return left


def _damaged(path: Path, error: sqlite3.Error) -> StoredDataError:
    return StoredDataError(
        f"{path} is damaged ({error}). Remove it while no arena runs: it holds no results."
    )


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
