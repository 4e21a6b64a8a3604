"""Checkpoints: what is stored comes back, another run goes on with it, and what is none is named; `tests.faults` damages them byte by byte."""

import importlib
import shutil
from dataclasses import replace

import pytest
import torch

from regard.core import OptionError, StoredDataError
from regard.lab.tables import TableClassifier
from regard.lab.tasks import Digits, StdlibMasked
from regard.lab.train import Run, TrainConfig, checkpoint, start
from regard.lab.train.checkpoint import Checkpoint, take_weights
from regard.lab.train.run import as_json
from regard.models import ClassifierConfig, LanguageModelConfig, MaskedLanguageModelConfig
from tests.lab.experiment.tiny import few_modules
from tests.lab.train.test_fit import newest, train
from tests.lab.train.tiny import CONFIG, Majority, TinyModel, tiny_model


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
    last = checkpoint.committed(tmp_path / "checkpoints")[-1]
    altered = last / "model.safetensors"
    altered.write_bytes(altered.read_bytes()[:-3])
    with pytest.raises(StoredDataError, match=str(altered)):
        train(tmp_path)
    shutil.rmtree(last)
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


SIZES = {"dim": 16, "num_heads": 2, "num_layers": 1, "max_len": 64}


def test_the_best_weights_are_taken_where_they_fit(tmp_path, monkeypatch):
    scores = iter([0.5, 0.9, 0.7, 0.6, 0.4])
    monkeypatch.setattr(Majority, "score", lambda *_: next(scores))
    train(tmp_path)
    best = checkpoint.load(checkpoint.path_of(tmp_path / "checkpoints", 20))
    model = TinyModel()
    model.head = torch.nn.Linear(8, 5)
    before = model.head.weight.clone()
    taken = take_weights(model, tmp_path)
    assert taken.step == 20 and taken.left == ("head.weight", "head.bias")
    assert torch.equal(model.embed.weight, best.model["embed.weight"])
    assert torch.equal(model.head.weight, before)
    numbers = sum(value.numel() for value in model.state_dict().values())
    assert taken.share == pytest.approx(1 - 45 / numbers)
    assert str(taken).endswith("of step 20; new: head.weight, head.bias")


def test_what_cannot_be_taken_is_refused(tmp_path):
    with pytest.raises(OptionError, match="no checkpoint"):
        take_weights(tiny_model(), tmp_path)
    train(tmp_path, replace(CONFIG, steps=2))
    with pytest.raises(OptionError, match="no tensor"):
        take_weights(torch.nn.Linear(3, 4), tmp_path)


def test_a_run_starts_from_another(tmp_path, capsys, monkeypatch):
    few_modules(monkeypatch)
    masked, digits = StdlibMasked(length=32, valid_size=8, test_size=8), Digits()
    brief = TrainConfig(steps=4, batch_size=4, eval_every=4, log_dir=None)
    model = MaskedLanguageModelConfig(vocab_size=masked.vocab_size, **SIZES)
    start(Run(task=masked, model=model, train=brief), tmp_path / "first", progress=False)
    model, brief = ClassifierConfig(**digits.facts, **SIZES), replace(brief, steps=1, lr=1e-9)
    run = Run(task=digits, model=model, train=brief, start_from=tmp_path / "first")
    start(run, tmp_path / "second", progress=True)
    for other, why in (
        (replace(run, seed=5), "seed is 0 there and 5 here"),
        (replace(run, start_from=None), "start_from is '[0-9a-f]{64}' there and None here"),
        (replace(run, model=replace(model, mixer="linear")), "model.mixer is 'softmax' there"),
    ):
        with pytest.raises(OptionError, match=why):
            start(other, tmp_path / "second", progress=False)
    assert start(run, tmp_path / "second", progress=True).steps == 1
    said = capsys.readouterr().err
    assert "head.weight" in said and "encoder.embedding.table.weight" in said
    first, second = (newest(tmp_path / name).model for name in ("first", "second"))
    kept = [name for name in first if "blocks" in name and "weight" in name and name in second]
    assert kept and all(torch.allclose(first[n], second[n], atol=1e-6, rtol=0) for n in kept)


def test_a_class_of_ones_own_is_told_by_its_module_and_its_code(tmp_path, monkeypatch):
    """A folder compares these with the run that goes on in it."""
    monkeypatch.syspath_prepend(tmp_path)
    told = []
    for module, scale in (("mine_a", 1), ("mine_b", 1), ("mine_c", 2)):
        text = f"import regard\n\nclass Mine(regard.MIXERS['softmax']):\n    scale = {scale}\n"
        (tmp_path / f"{module}.py").write_text(text)
        cls = importlib.import_module(module).Mine
        told.append(as_json(MaskedLanguageModelConfig(vocab_size=9, dim=8, mixer=cls))["mixer"])
    names, codes = zip(*(one.split() for one in told), strict=True)
    assert names == ("mine_a:Mine", "mine_b:Mine", "mine_c:Mine")
    assert codes[0] == codes[1] != codes[2]
    maps = [{"feature_map": _times(factor)} for factor in (1, 2)]
    one, other = (as_json(LanguageModelConfig(vocab_size=9, dim=8, mixer="linear", mixer_options=m)) for m in maps)  # fmt: skip
    assert one != other, "of another value of the function around it"


def _times(factor):
    return lambda x: factor * x
