"""One run folder, one writer; and a dead owner's place is free."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest

from regard.core import OptionError
from regard.lab.data import owners
from regard.lab.data.owners import Owner, owned

FORK = multiprocessing.get_context("fork")
FAR = replace(Owner.here(), host="elsewhere", space="elsewhere", pid=7)


def _hold(path, held, seconds):
    with owned(path):
        held.set()
        time.sleep(seconds)


@pytest.fixture
def holder(tmp_path):
    """Starts a process that owns the folder's run for so many seconds."""
    started = []

    def hold(seconds):
        held = FORK.Event()
        process = FORK.Process(target=_hold, args=(tmp_path / "run", held, seconds))
        process.start()
        started.append(process)
        assert held.wait(30)
        return process

    yield hold
    for process in started:
        process.kill()
        process.join()


def test_a_second_writer_is_refused_at_once_and_told_who_owns_it(tmp_path, holder):
    process = holder(60)
    began = time.monotonic()
    who = rf"another process trains here \(process {process.pid} on .*, since 2\d+-.* UTC\)"
    with pytest.raises(OptionError, match=who), owned(tmp_path / "run"):
        pass
    assert time.monotonic() - began < 5


def test_one_that_waits_gets_it(tmp_path, holder):
    holder(0.5)
    with owned(tmp_path / "run", wait=True):
        with pytest.raises(OptionError, match=f"process {os.getpid()} on"), owned(tmp_path / "run"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


def test_a_killed_owner_is_followed(tmp_path, holder):
    process = holder(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert (tmp_path / ".run.owner").exists()
    with owned(tmp_path / "run"):
        assert Owner.of_text((tmp_path / ".run.owner").read_text()).pid == os.getpid()


def test_an_owner_on_another_machine_is_known_by_its_heartbeat(tmp_path, monkeypatch):
    note = tmp_path / ".run.owner"
    note.write_text(FAR.text)
    with pytest.raises(OptionError, match="process 7 on elsewhere"), owned(tmp_path / "run"):
        pass
    assert Owner.of_text(note.read_text()) == FAR
    monkeypatch.setattr(owners, "_SETTLE", 0.01)
    old = time.time() - owners.STALE - 5
    os.utime(note, (old, old))
    with owned(tmp_path / "run"):
        assert Owner.of_text(note.read_text()).near


def test_the_owner_touches_its_note(tmp_path, monkeypatch):
    monkeypatch.setattr(owners, "BEAT", 0.01)
    with owned(tmp_path / "run"):
        note = tmp_path / ".run.owner"
        os.utime(note, (1, 1))
        for _ in range(200):
            time.sleep(0.01)
            if note.stat().st_mtime > 1:
                break
        assert note.stat().st_mtime > 1


def test_a_number_that_was_given_anew_is_another_process():
    mine = Owner.here()
    assert not mine.gone and replace(mine, born="1").gone
    assert Owner.of_text(mine.text) == mine
    assert Owner.of_text("{}") is None and Owner.of_text("half") is None
