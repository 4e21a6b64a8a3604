"""Trials as Ray tasks: each is computed on the user's cluster, and its row is kept here, in the one ledger.

The cluster is that of RAY_ADDRESS, or this machine. A trial whose worker is killed is run again once. Data travel from
here; the workers need Regard and, for a mixer of one's own, its module.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from regard.core import RegardError
from regard.lab.experiment.workers import Job

POLL = 1.0  # seconds


def share(
    jobs: Iterable[Job],
    doing: Callable[[str], AbstractContextManager[object]],
    late: Callable[[], bool] = lambda: False,
) -> int:
    """Does each job that is not done, as many at once as the cluster has processors. Returns how many were left, as it is late.

    Raises RegardError, naming the job, where its worker was killed twice.
    """
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    compute = ray.remote(num_cpus=1, max_retries=1)(_made)
    most = max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = [job for job in jobs if not job.found()]
    sent: dict[int, Any] = {}  # data, once for all jobs
    running: dict[Any, Job] = {}
    while running or (waiting and not late()):
        while waiting and len(running) < most and not late():
            job = waiting.pop(0)
            if id(job.data) not in sent:
                sent[id(job.data)] = ray.put(job.data)
            running[compute.remote(job.make, sent[id(job.data)])] = job
        with doing(", ".join(job.what for job in running.values())):
            done, _ = ray.wait(list(running), timeout=POLL)
        for reference in done:
            job = running.pop(reference)
            try:
                row = ray.get(reference)
            except ray.exceptions.WorkerCrashedError as error:
                raise RegardError(f"{job.what}: its worker on Ray was killed twice") from error
            job.keep(row)
    return len(waiting)


def _made(make: Callable[[Any], Any], data: Any) -> Any:
    return make(data)
