"""One run folder, one writer; and a dead owner's place is free."""

import json
import multiprocessing
import os
import time

import pytest

from regard.core import OptionError
from regard.lab.data import owners
from regard.lab.data.owners import owned

FORK = multiprocessing.get_context("fork")


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
        started.append(FORK.Process(target=_hold, args=(tmp_path / "run", held, seconds)))
        started[-1].start()
        assert held.wait(30)
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.join()


def test_a_second_writer_is_refused_at_once_and_told_who_owns_it_until_that_one_is_killed(
    tmp_path, holder
):
    process, note = holder(60), tmp_path / ".run.owner"
    began = time.monotonic()
    who = rf"another process trains here \(process {process.pid} on .*, since 2\d+-.* UTC\)"
    with pytest.raises(OptionError, match=who), owned(tmp_path / "run"):
        pass
    assert time.monotonic() - began < 5
    process.kill()
    process.join()
    assert json.loads(note.read_text())["pid"] == process.pid
    with owned(tmp_path / "run"):
        assert json.loads(note.read_text())["pid"] == os.getpid()


def test_one_that_waits_gets_it(tmp_path, holder):
    holder(0.5)
    with owned(tmp_path / "run", wait=True):
        with pytest.raises(OptionError, match=f"process {os.getpid()} on"), owned(tmp_path / "run"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


@pytest.mark.parametrize(
    ("note", "waits"),
    [
        ({"pid": 2**22 + 7}, True),  # a number that no process has
        ({"pid": os.getpid()}, False),
        ({"pid": 2**22 + 7, "space": "elsewhere"}, False),
        ({"pid": "seven"}, False),
        ([], False),
        (b"\xff", False),
        (None, False),
    ],
)
def test_helpers_of_a_dead_owner_are_waited_for_and_nobody_else(tmp_path, monkeypatch, note, waits):
    monkeypatch.setattr(owners, "_ORPHANS", 0.5)
    path = tmp_path / ".run.owner"
    with owners.locked(tmp_path / "run"):
        if note is None:
            os.mkfifo(path)
        elif isinstance(note, bytes):
            path.write_bytes(note)
        else:
            path.write_text(json.dumps({"space": owners.space()} | note if note else note))
        began = time.monotonic()
        with pytest.raises(OptionError, match="another process trains"), owned(tmp_path / "run"):
            pass
        assert (time.monotonic() - began > 0.4) == waits
