"""Bytes asked for in drawn orders."""

import math

import numpy as np
import pytest
import torch

from regard.lab.data.windows import START, Windows
from regard.lab.tasks import IGNORED, StdlibPermuted
from regard.lab.tasks.language_models import Draws
from regard.lab.train.batches import in_order
from tests.lab.experiment.tiny import few_modules


def test_one_token_in_k_is_asked_in_an_order_of_its_own():
    tokens = np.random.default_rng(0).integers(1, 9, (4000, 12))
    tokens[tokens == 8] = START
    draw = Draws(np.random.default_rng(1), torch.Generator())
    again = np.zeros_like(tokens, dtype=bool)
    again[-1, :4] = True
    rows = StdlibPermuted(length=12, k=3).rows(Windows(tokens, tokens, again), True, draw)
    order, labels = (rows.columns[name].values.reshape(-1, 12) for name in ("order", "label"))
    context = (tokens == START) | again
    asked, spared = order >= 0, context.sum(1)
    assert np.array_equal(labels[asked], tokens[asked]) and (labels[~asked] == IGNORED).all()
    assert not asked[context].any() and (asked.sum(1) == np.minimum(4, 12 - spared)).all()
    assert (np.sort(order[spared <= 8], axis=1)[:, -4:] == np.arange(4)).all()
    for found, share in ((asked, 1 / 3), (order == 0, 1 / 12)):  # evenly over the places
        assert np.abs(found[spared == 0].mean(0) - share).max() < 0.06


def even(tokens, *, order, valid=None):
    """Every byte is as likely as any."""
    assert order.shape == tokens.shape and (order < 10).all()
    return torch.zeros(*tokens.shape, 256)


def test_score_is_bits_of_the_asked_bytes(monkeypatch):
    few_modules(monkeypatch)
    task = StdlibPermuted(length=60, valid_size=20, test_size=6)
    splits = task.load()
    model = torch.nn.Module()
    model.forward = even
    batches = list(in_order(splits.test, 4, task.collate))
    assert task.score(model, batches) == pytest.approx(8, abs=1e-5)
    assert task.item_scores(model, batches) == pytest.approx([8.0] * 6, abs=1e-5)
    assert 2 < task.trivial_baseline(splits) < 6
    tokens, order = (splits.train.columns[name].values for name in ("tokens", "order"))
    assert (order[tokens == START] == -1).all() and splits.train.lengths.unique().tolist() == [60]
    assert task.count(batches[0]) == 4 * 60
    assert float(task.loss(model, batches[0])) == pytest.approx(math.log(256))
