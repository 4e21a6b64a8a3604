"""Checkpoints: what is stored comes back, and what is no checkpoint is named; `tests.faults` damages them byte by byte."""

import shutil

import pytest
import torch

from regard.core import StoredDataError
from regard.lab.tables import TableClassifier
from regard.lab.train import checkpoint
from regard.lab.train.checkpoint import Checkpoint, take_weights
from tests.lab.train.test_fit import train
from tests.lab.train.tiny import tiny_model


def test_round_trip(tmp_path):
    shared = torch.randn(4, 6)
    tensors = {"whole": shared, "tied": shared, "part": shared[:, 1:3], "half": shared.bfloat16()}
    path = checkpoint.path_of(tmp_path, 12)
    checkpoint.save(path, Checkpoint(tensors, {}, {"x": [1, 0.1, None]}))
    loaded = checkpoint.load(path)
    torch.testing.assert_close(loaded.model, tensors, rtol=0, atol=0)
    assert (loaded.optimizer, loaded.state) == ({}, {"x": [1, 0.1, None]})
    assert checkpoint.committed(tmp_path) == [path]


@pytest.mark.parametrize("name", [checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE])
def test_a_missing_file_and_a_format_of_the_future_are_named(tmp_path, monkeypatch, name):
    checkpoint.save(tmp_path / "c", Checkpoint({"w": torch.zeros(1)}, {}, {}))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 0)
        with pytest.raises(StoredDataError, match="has format 1, and this version of regard rea"):
            checkpoint.load(tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    with pytest.raises(StoredDataError, match=f"{name} is missing"):
        checkpoint.load(tmp_path / "c")


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
