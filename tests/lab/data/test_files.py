"""Who comes at once: data are generated once for equal options, and a run folder has one writer; `tests.faults` damages files and kills owners."""

import json
import multiprocessing
import os
import time

import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.data import generated as module, owners
from regard.lab.data.generated import generated, path_of
from regard.lab.data.owners import owned

FORK = multiprocessing.get_context("fork")
OPTIONS = {"count": 3, "seed": 0}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.setattr(module, "WORTH_KEEPING", 10)
    return tmp_path


def _generate(started, makers):
    def make():
        with makers.get_lock():
            makers.value += 1
        return {"a": np.arange(1000)}

    started.wait()
    assert generated("thing", {"seed": 0}, make)["a"][-1] == 999


def test_processes_that_come_at_once_generate_once(folder):
    started, makers = FORK.Barrier(3), FORK.Value("i", 0)
    workers = [FORK.Process(target=_generate, args=(started, makers)) for _ in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0] and makers.value == 1


def make(value=1):
    return lambda: {"a": np.arange(5) + value, "b": np.zeros((2, 3), np.uint8)}


def never():
    raise AssertionError("made again")


def test_made_once_for_equal_options_and_little_is_not_kept(folder, monkeypatch):
    first, again = generated("thing", OPTIONS, make()), generated("thing", OPTIONS, never)
    assert first.keys() == again.keys() and again["b"].dtype == np.uint8
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert generated("thing", OPTIONS | {"seed": 1}, make(7))["a"][0] == 7
    assert generated("else", OPTIONS, make(9))["a"][0] == 9
    kept = len(list(folder.rglob("*.npz")))
    monkeypatch.setattr(module, "WORTH_KEEPING", 1000)
    generated("little", OPTIONS, make())
    assert len(list(folder.rglob("*.npz"))) == kept == 3
    path_of("thing", OPTIONS).unlink()
    assert generated("thing", OPTIONS, make(8))["a"][0] == 8


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
