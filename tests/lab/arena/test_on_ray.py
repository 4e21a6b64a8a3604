"""Trials as tasks of a local Ray cluster."""

import os
import signal
from dataclasses import replace
from functools import partial

import pytest

from regard.core import RegardError
from regard.lab.arena import laws, on_ray
from regard.lab.arena.claims import Job
from regard.lab.arena.ledger import Ledger
from regard.lab.arena.results import Trained
from regard.lab.arena.run import run_suite
from tests.lab.arena.test_run import LISTOPS, TINY

ray = pytest.importorskip("ray", reason="needs the extra `ray`, which `dev` does not bring")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_trials_are_the_same_rows_as_without(tmp_path, monkeypatch):
    monkeypatch.setattr(laws, "check_mixer", lambda factory, **_: ["all"])
    suite = replace(TINY, mixers=("softmax", "linear"), contests=(LISTOPS,), race=None)
    found = []
    for on in (True, False):
        with Ledger(tmp_path / f"{on}.sqlite") as ledger:
            outcome = run_suite(suite, ledger, tmp_path / f"{on}", progress=False, on_ray=on)
            assert run_suite(suite, ledger, tmp_path, progress=False, on_ray=on).new == 0
        found.append({r.mixer: r.value for r in outcome.results if isinstance(r, Trained)})
    assert found[0] == found[1] and len(found[0]) == 2


def _dies(path, times, data):
    """Its worker is killed so many times."""
    if len(list(path.parent.glob(f"{path.name}.*"))) < times:
        (path.parent / f"{path.name}.{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return data


def _job(name, make, kept):
    return Job(
        key=name,
        what=name,
        found=lambda: name in kept,
        do=lambda: None,
        make=make,
        data=name,
        keep=lambda row: kept.__setitem__(name, row),
    )


class _Quiet:
    def __call__(self, what):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


def test_a_killed_workers_trial_is_run_again_once(tmp_path):
    kept = {}
    jobs = [_job(name, partial(_dies, tmp_path / name, int(name == "b")), kept) for name in "abc"]
    assert on_ray.share(jobs, _Quiet()) == 0
    assert kept == {"a": "a", "b": "b", "c": "c"}
    assert len(list(tmp_path.glob("b.*"))) == 1
    with pytest.raises(RegardError, match="d: its worker on Ray was killed twice"):
        on_ray.share([_job("d", partial(_dies, tmp_path / "d", 2), kept)], _Quiet())
    assert (
        on_ray.share([_job("e", partial(_dies, tmp_path / "e", 0), kept)], _Quiet(), lambda: True)
        == 1
    )
