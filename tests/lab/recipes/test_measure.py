"""Rows of docs/recipes.json, from a few steps of a small run."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from regard.lab.recipes import Run
from regard.lab.tasks import Digits
from regard.lab.train import TrainConfig
from regard.models import ClassifierConfig, TransformerConfig
from tests.lab.tasks.test_text_pairs import Counting

FILE = Path(__file__).parents[3] / "docs" / "measure.py"


def first() -> Run:
    return Run(
        task=Digits(),
        model=ClassifierConfig(
            vocab_size=18, num_classes=10, max_len=64, dim=8, num_heads=2, num_layers=1
        ),
        train=TrainConfig(steps=2, batch_size=8, eval_every=2, log_dir=None),
        seed=3,
    )


def translated() -> Run:
    task = replace(Counting(), metric="bits_per_byte")
    model = TransformerConfig(vocab_size=330, max_len=12, dim=8, num_heads=2, num_layers=1)
    train = TrainConfig(steps=2, batch_size=8, eval_every=2, log_dir=None)
    return Run(task=task, model=model, train=train)


def second() -> Run:
    return replace(first(), start_from=Path("runs/train/first"))


@pytest.fixture
def measure(monkeypatch):
    spec = importlib.util.spec_from_file_location("measure", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        module, "RECIPES", {"first": first, "second": second, "translated": translated}
    )
    return module


def test_a_row_says_where_it_comes_from(measure, tmp_path):
    row = json.loads(json.dumps(measure.measured("first", tmp_path)))
    assert row["task"] == "digits" and row["counts"] == [1167, 270, 360]
    assert row["run"]["seed"] == 3 and row["run"]["start_from"] is None
    assert row["run"]["model"]["dim"] == 8 and row["run"]["train"]["steps"] == 2
    assert row["run"]["task"]["test_size"] == 360
    assert {"commit", "device", "threads", "versions"} <= row["provenance"].keys()
    assert row["of"] == "most frequent class" and row["generated"] == {}
    assert row["notes"] == {} and len(row["data_sha256"]) == 64


def test_what_a_run_starts_from_is_trained_first(measure, tmp_path):
    row = measure.measured("second", tmp_path)
    assert row["run"]["start_from"] == "first" and (tmp_path / "first").is_dir()


def test_what_is_scored_by_bits_is_generated_too(measure, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    row = measure.measured("translated", tmp_path)
    assert (row["metric"], row["better"], row["of"]) == (
        "bits_per_byte",
        "lower",
        "token frequencies",
    )
    for scores in (row["generated"]["model"], row["generated"]["baseline"]):
        assert scores.keys() == {"bleu", "chrf", "rouge_l"} and 0 <= scores["bleu"] <= 100
