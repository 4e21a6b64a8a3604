"""Workers on one ledger: each trial is one's, and a dead worker's is another's."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest

from regard.core import PathError, StoredDataError
from regard.lab.data.owners import Owner
from regard.lab.experiment import workers as module
from regard.lab.experiment.workers import Claims

FORK = multiprocessing.get_context("fork")


def _work(path, events):
    claims = Claims(path)
    while True:
        with claims.claim("a") as holder:
            events.send(holder is None)
            time.sleep(60)


def test_a_trial_is_one_workers_until_it_ends_or_dies(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ours, theirs = FORK.Pipe()
    worker = FORK.Process(target=_work, args=(path, theirs))
    worker.start()
    assert ours.recv()
    claims = Claims(path)
    with claims.claim("a") as holder:
        assert holder.pid == worker.pid
    with claims.claim("b") as holder:
        assert holder is None
        with claims.claim("b") as again:
            assert again == claims.owner
    with claims.claim("timing", alone=True) as holder:
        assert holder.pid == worker.pid
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    with claims.claim("a") as holder:
        assert holder is None
    with claims.claim("timing", alone=True) as holder:
        assert holder is None


def test_timing_keeps_other_work_from_the_machine(tmp_path):
    one, two = Claims(tmp_path / "l"), Claims(tmp_path / "l")
    two.owner = replace(two.owner, since="later")
    with one.claim("timing", alone=True), two.claim("a") as holder:
        assert holder == one.owner
    one.owner = replace(one.owner, space="elsewhere")
    with one.claim("timing", alone=True), two.claim("a") as holder:
        assert holder is None


def test_a_worker_elsewhere_is_dead_when_its_count_stands_still(tmp_path, monkeypatch):
    far, near = Claims(tmp_path / "l"), Claims(tmp_path / "l")
    far.owner = replace(Owner.here(), space="elsewhere", host="elsewhere")
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with far.claim("a"):
        for beat, (moment, dead) in enumerate(((0, False), (89, False), (100, False), (191, True))):
            now[0] = moment
            if beat == 1:
                far._do("UPDATE claims SET beat = beat + 1")
            with near.claim("a") as holder:
                assert (holder is None) == dead


def test_what_cannot_be_used_is_named(tmp_path):
    (tmp_path / ".l.claims").write_text(
        "no database, and longer than a head of a hundred bytes" * 9
    )
    with pytest.raises(StoredDataError, match=r"\.l\.claims is damaged"):
        with Claims(tmp_path / "l").claim("a"):
            pass
    with pytest.raises(PathError, match=r"\.l\.claims cannot be written"):
        with Claims(tmp_path / "nowhere" / "l").claim("a"):
            pass
