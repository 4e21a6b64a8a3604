"""Claims on a machine that is timed and in a folder that cannot be used, and trials as tasks of a local Ray cluster; `tests.faults` kills workers."""

import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

from regard.core import PathError, RegardError
from regard.lab import ask
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.workers import Claims, Job, share_on_ray
from tests.lab.experiment.tiny import SCREEN


def test_timing_keeps_other_work_from_the_machine(tmp_path):
    one, two = Claims(tmp_path / "l"), Claims(tmp_path / "l")
    with one.claim("timing", alone=True), two.claim("a") as mine:
        assert not mine
    one.machine = "elsewhere"
    with one.claim("timing", alone=True), two.claim("a") as mine:
        assert mine


def test_what_cannot_be_used_is_named(tmp_path):
    (tmp_path / ".l.locks").write_text("no folder")
    with pytest.raises(PathError, match=r"\.l\.locks.* cannot be written"):
        with Claims(tmp_path / "l").claim("a"):
            pass


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray", reason="needs the extra `ray`, which `dev` does not bring")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_trials_are_the_same_rows_as_without(cluster, tmp_path):
    found = []
    for on in (True, False):
        with Ledger(tmp_path / f"{on}.sqlite") as ledger:
            for _ in range(2):
                ask(replace(SCREEN, seeds=(0,)), ledger, tmp_path, on_ray=on)
            rows = [row for row in ledger.rows() if row.kind == "trained"]
        found.append({(row.entry, row.rate): row.value for row in rows})
    assert found[0] == found[1] and len(found[0]) == len(rows) == 8


def _dies(path, times, data):
    """Its worker is killed so many times."""
    if len(list(path.parent.glob(f"{path.name}.*"))) < times:
        (path.parent / f"{path.name}.{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return data


def _job(name, make, kept):
    keep = partial(kept.__setitem__, name)
    return Job(key=name, what=name, found=lambda: name in kept, make=make, data=name, keep=keep)


def test_a_killed_workers_trial_is_run_again_once(cluster, tmp_path):
    kept = {}
    jobs = [_job(name, partial(_dies, tmp_path / name, int(name == "b")), kept) for name in "abc"]
    assert share_on_ray(jobs, nullcontext) == 0
    assert kept == {"a": "a", "b": "b", "c": "c"}
    assert len(list(tmp_path.glob("b.*"))) == 1
    with pytest.raises(RegardError, match="d: its worker on Ray was killed twice"):
        share_on_ray([_job("d", partial(_dies, tmp_path / "d", 2), kept)], nullcontext)
    jobs = [_job("e", partial(_dies, tmp_path / "e", 0), kept)]
    assert share_on_ray(jobs, nullcontext, lambda: True) == 1  # it is late
