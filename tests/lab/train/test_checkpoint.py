"""Checkpoints: all or nothing on disk, and no altered byte goes unnoticed."""

import shutil

import pytest
import torch

from regard.core import PathError, StoredDataError, files
from regard.lab.tables import TableClassifier
from regard.lab.train import checkpoint
from regard.lab.train.checkpoint import Checkpoint, take_weights
from tests.lab.train.test_fit import train
from tests.lab.train.tiny import tiny_model

FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


@pytest.fixture
def folder(tmp_path):
    stored = Checkpoint(
        {"a.weight": torch.randn(5, 3), "b": torch.arange(7)},
        {"a.weight/step": torch.tensor(4.0)},
        {"step": 4, "loss": 0.1, "curve": [[2, 0.5]]},
    )
    path = checkpoint.path_of(tmp_path, 4)
    checkpoint.save(path, stored)
    return path


def test_round_trip(tmp_path):
    shared = torch.randn(4, 6)
    tensors = {"whole": shared, "tied": shared, "part": shared[:, 1:3], "half": shared.bfloat16()}
    path = checkpoint.path_of(tmp_path, 12)
    checkpoint.save(path, Checkpoint(tensors, {}, {"x": [1, 0.1, None]}))
    loaded = checkpoint.load(path)
    assert all(torch.equal(loaded.model[name], value) for name, value in tensors.items())
    assert (loaded.optimizer, loaded.state) == ({}, {"x": [1, 0.1, None]})
    assert checkpoint.committed(tmp_path) == [path]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [0, 0.5, -1])
def test_a_truncated_or_missing_file_is_named(folder, name, left):
    path = folder / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * left) if left >= 0 else left])
    with pytest.raises(StoredDataError, match=name):
        checkpoint.load(folder)
    path.unlink()
    with pytest.raises(StoredDataError, match=f"{name} is missing"):
        checkpoint.load(folder)


def test_a_format_of_the_future_is_refused(folder, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 0)
    with pytest.raises(StoredDataError, match="has format 1, and this version of regard reads 0"):
        checkpoint.load(folder)


def test_a_failure_while_writing_leaves_what_was_committed(folder, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(files, "_sync", full)
    with pytest.raises(PathError, match="no space left on device"):
        checkpoint.save(checkpoint.path_of(folder.parent, 5), Checkpoint({}, {}, {}))
    assert checkpoint.committed(folder.parent) == [folder]
    checkpoint.load(folder)
    checkpoint.clean(folder.parent)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_run_does_not_go_on_from_an_altered_checkpoint(tmp_path):
    train(tmp_path)
    newest = checkpoint.committed(tmp_path / "checkpoints")[-1]
    altered = newest / "model.safetensors"
    altered.write_bytes(altered.read_bytes()[:-3])
    with pytest.raises(StoredDataError, match=str(altered)):
        train(tmp_path)
    shutil.rmtree(newest)
    train(tmp_path)


def test_a_checkpoint_of_something_else_is_no_run(tmp_path):
    path = checkpoint.path_of(tmp_path / "checkpoints", 4)
    checkpoint.save(path, Checkpoint({"w": torch.zeros(1)}, {}, {"progress": {"step": []}}))
    with pytest.raises(StoredDataError, match="is no checkpoint of a training run"):
        take_weights(tiny_model(), tmp_path)
    with pytest.raises(StoredDataError, match=f"{path} is no checkpoint of a training run"):
        train(tmp_path)
    with pytest.raises(StoredDataError, match="holds no TableClassifier"):
        TableClassifier.load(path)


def test_a_description_sealed_anew_is_read_with_care(folder):
    for body in (b"[]", b"{}", b"[" * 100_000, b'{"format": 1, "files": [], "state": {}}'):
        (folder / "state.json").write_bytes(body[:-1] + checkpoint._seal(body[:-1] + b"}"))
        with pytest.raises(StoredDataError, match=r"state\.json describes no checkpoint"):
            checkpoint.load(folder)
