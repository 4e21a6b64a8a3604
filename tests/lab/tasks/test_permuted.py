"""Bytes asked for in drawn orders."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from regard.lab.data.synthetic import draw_orders
from regard.lab.data.windows import START
from regard.lab.tasks import IGNORED, StdlibPermuted
from regard.lab.train.batches import in_order

SIZES = {"length": 60, "valid_size": 20, "test_size": 30}


@pytest.fixture(scope="module")
def splits():
    return StdlibPermuted(**SIZES).load()


def test_one_token_in_k_is_asked_in_an_order_of_its_own():
    tokens = np.random.default_rng(0).integers(1, 9, (4000, 12))
    order, labels = draw_orders(tokens, 3, np.random.default_rng(1), never=(8,))
    again = draw_orders(tokens, 3, np.random.default_rng(1), never=(8,))
    assert np.array_equal(order, again.order) and np.array_equal(labels, again.labels)
    asked = order >= 0
    assert np.array_equal(labels[asked], tokens[asked]) and (labels[~asked] == IGNORED).all()
    assert not asked[tokens == 8].any()
    enough = (tokens != 8).sum(1) >= 4
    assert (np.sort(order[enough], axis=1)[:, -4:] == np.arange(4)).all()
    assert (asked.sum(1) == np.minimum(4, (tokens != 8).sum(1))).all()
    places = asked[(tokens != 8).all(1)].mean(0)
    assert np.abs(places - 1 / 3).max() < 0.06
    first = (order == 0)[(tokens != 8).all(1)].mean(0)
    assert np.abs(first - 1 / 12).max() < 0.04


class Even(nn.Module):
    """Knows nothing: every byte is as likely as any; and remembers how it was asked."""

    def forward(self, tokens, *, order, valid=None):
        assert order.shape == tokens.shape and (order < 10).all()
        return torch.zeros(*tokens.shape, 256)


def test_score_is_bits_of_the_asked_bytes(splits):
    task = StdlibPermuted(**SIZES)
    batches = list(in_order(splits.test, 8, task.collate))
    assert task.score(Even(), batches) == pytest.approx(8, abs=1e-5)
    assert task.item_scores(Even(), batches) == pytest.approx([8.0] * 30, abs=1e-5)
    assert 4 < task.trivial_baseline(splits) < 6
    tokens, order = (splits.train.columns[name].values for name in ("tokens", "order"))
    assert (order[tokens == START] == -1).all() and splits.train.lengths.unique().tolist() == [60]
    assert task.count(batches[0]) == 8 * 60
    loss = task.loss(Even(), batches[0])
    assert float(loss) == pytest.approx(math.log(256))
