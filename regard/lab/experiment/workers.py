"""Workers: several processes on one ledger share its trials by claims.

A claim is a file's lock, in a folder beside the ledger. The system frees it when its process ends: a trial whose worker was killed
is done by another. It says who is at work, never what was done; the ledger alone holds results, and the folder may be removed.
"""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from regard.core.files import path_error, reported, text_sha256
from regard.lab.data.owners import locked, space

Check = Callable[[], bool]
Callback = Callable[[str], object]  # what hears of a job
POLL = 0.5  # seconds between looks at what other processes do


class Job(NamedTuple):
    """A piece of work that one process claims."""

    key: str
    what: str
    found: Check  # notes the results if the ledger has them
    make: Callable[[Any], Any]  # what is computed of `data`; both may travel to another machine
    keep: Callable[[Any], None]  # what is done with it here
    data: Any = None
    alone: bool = False  # on this machine


class Claims:
    """Claims on the trials of the ledger at `ledger`. Raises PathError where they cannot be written."""

    def __init__(self, ledger: Path):
        self.folder = ledger.with_name(f".{ledger.name}.locks")
        probe = self.folder / "probe"  # one file, for which processes wait: locks are not removed
        with reported(self.folder), locked(probe):
            with suppress(Timeout), locked(probe, timeout=0):
                raise path_error(
                    self.folder,
                    None,
                    "its file system does not lock files, and processes would share no work",
                )
        self.machine = text_sha256(space())[:16]

    @contextmanager
    def claim(self, key: str, *, alone: bool = False) -> Iterator[bool]:
        """True: in the block the trial is this process's.

        alone: for timings. It is given only while no other process of this machine has a claim, and none is given to them
        until it ends.
        """
        with ExitStack() as held:
            mine = True
            with reported(self.folder):
                try:
                    self._take(held, key, alone)
                except Timeout:
                    held.close()
                    mine = False
            yield mine

    def _take(self, held: ExitStack, key: str, alone: bool) -> None:
        """Each takes its own lock before it looks at the other's, so that at least one of two that come at once sees the other."""

        def lock(name: str) -> FileLock:
            return locked(self.folder / name, timeout=0)

        timing = lock(f"{self.machine}.timing")
        held.enter_context(lock(key[:3]))  # a file for each trial is too many
        held.enter_context(timing if alone else lock(f"{self.machine}.busy.{os.getpid()}"))
        others = [timing]
        if alone:
            found = self.folder.glob(f".{self.machine}.busy.*.lock")
            others = [lock(path.name[1:-5]) for path in found]
        for other in others:
            with other:
                pass


def share(
    jobs: Iterable[Job],
    claims: Claims,
    doing: Callback,
    late: Check = lambda: False,
    done: Callback = lambda key: None,
) -> int:
    """Does each job that nobody has done or is doing, then waits for what others are doing; a dead worker's job is free.

    Each is done by one of the processes that share the claims, and all return when all is done. `doing` shows what is done,
    `done` gets the key of what was found or kept. Once it is `late`, nothing more is begun or waited for. Returns how many jobs were left.
    """
    waiting = list(jobs)
    left = 0
    while waiting:
        busy = []
        for job in waiting:
            if job.found():
                done(job.key)
                continue
            if late():
                left += 1
                continue
            with claims.claim(job.key, alone=job.alone) as mine:
                if not mine:
                    busy.append(job)
                    continue
                if not job.found():  # another may have ended between
                    doing(job.what)
                    job.keep(job.make(job.data))
                done(job.key)
        if busy and len(busy) == len(waiting):
            doing(f"waiting for another process ({busy[0].what})")
            time.sleep(POLL)
        waiting = busy
    return left


def share_on_ray(
    jobs: Iterable[Job],
    doing: Callback,
    late: Check = lambda: False,
    done: Callback = lambda key: None,
    gpus: float = 0,
) -> int:
    """Does each job as a task of the user's Ray cluster, as many at once as it then has processors and GPUs, and keeps each result here.

    The cluster is that of RAY_ADDRESS, or this machine; it may grow and shrink. A task whose worker or node is lost is run again once;
    lost again, it is left, with a warning, and the others go on. Data travel from here; the workers need Regard and, for a mixer of
    one's own, its module. gpus: of each task. Returns how many were left.
    """
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    compute = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=1)(lambda make, data: make(data))
    waiting = []
    lost = 0
    for job in jobs:
        if job.found():
            done(job.key)
        else:
            waiting.append(job)
    sent = {}  # data, once for all jobs
    running = dict[Any, Job]()
    while running or (waiting and not late()):
        have = ray.cluster_resources()
        most = max(1, int(min(have.get("CPU", 0), have.get("GPU", 0) / gpus if gpus else math.inf)))
        while waiting and len(running) < most and not late():
            job = waiting.pop(0)
            if id(job.data) not in sent:
                sent[id(job.data)] = ray.put(job.data)
            running[compute.remote(job.make, sent[id(job.data)])] = job
        doing(", ".join(job.what for job in running.values()))
        ended, _ = ray.wait(list(running), timeout=2 * POLL)
        for reference in ended:
            job = running.pop(reference)
            try:
                row = ray.get(reference)
            except ray.exceptions.RayError as error:
                lost += 1
                warnings.warn(f"{job.what} failed on Ray: {error}", stacklevel=2)
                continue
            job.keep(row)
            done(job.key)
    return len(waiting) + lost
