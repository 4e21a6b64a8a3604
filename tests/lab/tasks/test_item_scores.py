"""The scores of test items have the metric as their mean, whatever the kind of task."""

import numpy as np
import pytest
import torch

from regard import OptionError
from regard.lab import Column, Entry, Shell, tasks
from regard.lab.experiment.trial import model_config
from regard.lab.tasks.fingerprint import Address, Counting
from regard.lab.tasks.table import auc_items
from regard.lab.train import TrainConfig
from regard.lab.train.batches import in_order
from tests.lab.experiment.tiny import few_modules

SIZES = {"train_size": 40, "valid_size": 8, "test_size": 60}
WINDOWS = {"length": 12, "valid_size": 4, "test_size": 30}
TABLE = tasks.PlantedHistories(history=4, **SIZES)
TASKS = (
    tasks.ListOps(min_length=5, max_length=20, **SIZES),
    tasks.Recall(**SIZES),
    Counting(**SIZES),
    Address(causal=True, **SIZES),
    tasks.StdlibBytes(**WINDOWS),
    tasks.StdlibMasked(**WINDOWS),
    TABLE,
    tasks.CorrelatedTasks(dim=4, **SIZES),
    tasks.WhitePixel(),
)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_their_mean_is_the_metric(task, monkeypatch):
    few_modules(monkeypatch)
    splits, shell = task.load(), Shell(dim=16, num_heads=2)
    torch.manual_seed(0)
    column = Column(name="c", task=task, train=TrainConfig(steps=1), shell=shell)
    if task.kind == "vectors":
        model = torch.nn.Linear(task.facts["input_dim"], 2)
    else:
        model = model_config(column, Entry(mixer="softmax"), splits).build()
    batches = list(in_order(splits.test, 7, task.collate))
    scores = task.item_scores(model, batches)
    assert task.has_scores and len(scores) == len(splits.test) and len({*scores}) > 1
    assert np.mean(scores) == pytest.approx(task.score(model, batches), rel=1e-6)


def test_what_is_no_mean_of_items_has_none():
    assert not tasks.Spam().has_scores  # macro-F1
    with pytest.raises(OptionError, match="spam gives no score of each item"):
        tasks.Spam().item_scores(torch.nn.Identity(), [])


def test_the_spread_of_an_area_is_delongs():
    """Against DeLong's own formula, with ties: V10 and V01 by comparing all pairs."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 80)
    scores = np.round(rng.normal(size=80) + labels, 1)
    items = auc_items(scores, labels)
    x, y = scores[labels == 1], scores[labels == 0]
    won = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    variance = won.mean(1).var(ddof=1) / len(x) + won.mean(0).var(ddof=1) / len(y)
    assert items.mean() == pytest.approx(won.mean())
    assert items.var(ddof=1) / len(items) == pytest.approx(variance, rel=0.03)


def test_a_missing_label_moves_nothing():
    logits, noise = torch.randn(2, 60, 1, generator=torch.Generator().manual_seed(1))
    labels = (logits + noise > 0).float()
    known = [{"fields": logits[:40], "labels": labels[:40].clone()}]
    labels[40:] = float("nan")
    given = [{"fields": logits, "labels": labels}]
    says = torch.nn.Identity()
    few, many = (np.array(TABLE.item_scores(says, batches)) for batches in (known, given))
    assert many.mean() == pytest.approx(few.mean()) == pytest.approx(TABLE.score(says, given))
    assert many.var() / 60 == pytest.approx(few.var() / 40)
