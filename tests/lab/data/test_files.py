"""Files are there whole or not at all, and two processes make a thing once."""

import multiprocessing
import os

import numpy as np
import pytest
from filelock import Timeout

from regard.core import PathError
from regard.lab.data import generated as module
from regard.lab.data.files import locked, whole
from regard.lab.data.generated import generated


def test_nothing_but_a_plain_file_is_replaced(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "device").symlink_to("/dev/full")
    os.mkfifo(tmp_path / "pipe")
    modes = {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    for name in ("link", "device", "pipe"):
        said = f"{name} cannot be written: it is no plain file"
        with pytest.raises(PathError, match=said), whole(tmp_path / name) as partial:
            partial.write_text("new")
    assert modes == {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    assert (tmp_path / "there").read_text() == "old"


def test_a_lock_is_for_one(tmp_path):
    with locked(tmp_path / "run"):
        with pytest.raises(Timeout), locked(tmp_path / "run", timeout=0):
            pass
    with locked(tmp_path / "run", timeout=0):
        assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


def _generate(started, makers):
    module.WORTH_KEEPING = 10

    def make():
        with makers.get_lock():
            makers.value += 1
        return {"a": np.arange(1000)}

    started.wait()
    assert generated("thing", {"seed": 0}, make)["a"][-1] == 999


def test_processes_that_come_at_once_generate_once(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    context = multiprocessing.get_context("fork")
    started, makers = context.Barrier(3), context.Value("i", 0)
    workers = [context.Process(target=_generate, args=(started, makers)) for _ in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0] and makers.value == 1
