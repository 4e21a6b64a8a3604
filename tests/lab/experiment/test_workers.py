"""Claims on a machine that is timed and in a folder that cannot be used, and trials as tasks of a local Ray cluster; `tests.faults` kills workers."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

from regard.core import PathError
from regard.lab import ask
from regard.lab.experiment import workers
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


def test_what_cannot_be_used_is_named(tmp_path, monkeypatch):
    (tmp_path / ".l.locks").write_text("no folder")
    with pytest.raises(PathError, match=r"\.l\.locks.* cannot be written"):
        Claims(tmp_path / "l").claim("a").__enter__()
    monkeypatch.setattr(workers, "locked", lambda path, timeout=0: nullcontext())
    with pytest.raises(PathError, match="does not lock files"):
        Claims(tmp_path / "other")


def test_a_worker_whose_first_process_is_gone_ends(tmp_path):
    """Its standard input is a pipe of that process: closed, nobody reads what the worker finds."""
    given = "arena --task listops --mixers softmax --seeds 0 1 2 3 --hours 9".split()
    command, env = [sys.executable, "-m", "regard", *given], os.environ | {"REGARD_PART_OF": "1"}
    pipes = dict.fromkeys(("stdin", "stderr"), subprocess.PIPE)
    worker = subprocess.Popen(command, cwd=tmp_path, env=env, **pipes)
    worker.stdin.close()
    assert worker.wait(60) in (-signal.SIGTERM, 128 + signal.SIGTERM), worker.stderr.read()
    worker.stderr.close()


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray", reason="needs the extra `ray`, which `dev` does not bring")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


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
    jobs = [_job(name, partial(_dies, tmp_path / name, 2 * (name == "d")), kept) for name in "de"]
    with pytest.warns(UserWarning, match="d failed on Ray: "):
        assert share_on_ray(jobs, nullcontext) == 1
    assert "e" in kept and "d" not in kept
    jobs = [_job("f", partial(_dies, tmp_path / "f", 0), kept)]
    assert share_on_ray(jobs, nullcontext, lambda: True) == 1  # it is late


def _wrong(_):
    raise ZeroDivisionError("a mistake")


def test_a_mistake_in_a_trial_is_the_reason_of_its_row(cluster, tmp_path):
    asked = replace(SCREEN, seeds=(0,), rates=(1e-3,), measures=_wrong)
    rows = [row for row in ask(asked, tmp_path / "l", tmp_path, on_ray=True) if row.entry]
    assert {row.reason for row in rows} == {"failed: ZeroDivisionError('a mistake')"}
    assert len({row.entry for row in rows}) == 4


def _waits(folder, name):
    """Until the cluster has lost a node."""
    (folder / name).touch()
    while not (folder / "lost").exists():
        time.sleep(0.1)
    return name


def test_a_cluster_grows_and_loses_a_node(cluster, tmp_path):
    nodes, kept = [], {}

    def doing(what):
        if not nodes and (tmp_path / "b").exists():
            nodes.append(cluster.add_node(num_cpus=1))
        elif nodes and (tmp_path / "c").exists() and not (tmp_path / "lost").exists():
            cluster.remove_node(nodes[0], allow_graceful=False)
            (tmp_path / "c").rename(tmp_path / "lost")

    assert share_on_ray([_job(name, partial(_waits, tmp_path), kept) for name in "abc"], doing) == 0
    assert kept == {"a": "a", "b": "b", "c": "c"}
    assert (tmp_path / "c").exists()
