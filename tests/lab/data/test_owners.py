"""One run folder, one writer: who waits gets it; `tests.faults` kills owners."""

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


def test_one_that_waits_gets_it(tmp_path):
    held = FORK.Event()
    FORK.Process(target=_hold, args=(tmp_path / "run", held, 0.5)).start()
    assert held.wait(30)
    with owned(tmp_path / "run", wait=True):
        with pytest.raises(OptionError, match=f"process {os.getpid()} on"), owned(tmp_path / "run"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


NOBODY = 2**22 + 7  # a number that no process has
DEAD = {"pid": NOBODY}
ALIVE = [{"pid": os.getpid()}, {"pid": NOBODY, "space": "elsewhere"}, {"pid": "seven"}]


@pytest.mark.parametrize("note", [DEAD, *ALIVE, [], b"\xff", None])
def test_helpers_of_a_dead_owner_are_waited_for_and_nobody_else(tmp_path, monkeypatch, note):
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
        assert (time.monotonic() - began > 0.4) == (note is DEAD)
