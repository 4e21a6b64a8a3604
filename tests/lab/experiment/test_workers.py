"""Workers on one ledger: each trial is one's, and a dead worker's is another's."""

import multiprocessing
import os
import signal
import time

import pytest

from regard.core import PathError
from regard.lab.experiment.workers import Claims

FORK = multiprocessing.get_context("fork")


def _work(path, events):
    with Claims(path).claim("a") as mine:
        events.send(mine)
        time.sleep(60)


def test_a_trial_is_one_workers_until_it_ends_or_dies(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ours, theirs = FORK.Pipe()
    worker = FORK.Process(target=_work, args=(path, theirs))
    worker.start()
    assert ours.recv()
    claims = Claims(path)

    def given(key, **how):
        with claims.claim(key, **how) as mine:
            return mine

    assert not given("a") and not given("timing", alone=True)
    with claims.claim("b") as mine, claims.claim("b") as again:
        assert mine and not again
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert given("a") and given("timing", alone=True)


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
