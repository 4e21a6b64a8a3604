"""Data are generated once for equal options, whoever comes at once; `tests.faults` damages what is kept."""

import multiprocessing

import numpy as np
import pytest

from regard.lab.data import generated as module
from regard.lab.data.generated import generated, path_of

OPTIONS = {"count": 3, "seed": 0}


@pytest.fixture(autouse=True)
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


def test_processes_that_come_at_once_generate_once():
    context = multiprocessing.get_context("fork")
    started, makers = context.Barrier(3), context.Value("i", 0)
    workers = [context.Process(target=_generate, args=(started, makers)) for _ in "abc"]
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
