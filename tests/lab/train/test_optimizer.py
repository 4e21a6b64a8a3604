"""Schedule, decay groups, and the order of batches."""

import pytest
import torch
from torch import nn

from regard.lab.train import TrainConfig
from regard.lab.train.batches import Batches
from regard.lab.train.optimizer import make_optimizer, make_schedule
from tests.lab.train.tiny import tiny_model


@pytest.mark.parametrize(("shape", "steps", "warmup", "shares"), [
    ("cosine", 11, 3 / 11, {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0, 5: 0.5 + 0.5 * 2**-0.5, 7: 0.5}),
    ("cosine", 11, 0.0, {0: 1.0}),
    ("linear", 11, 0.2, {0: 0.5, 1: 1.0, 2: 1 - 0.98 / 9, 10: 0.02}),
    *((shape, 1, 0.9, {}) for shape in ("cosine", "linear")),  # a warm-up may take all steps
])  # fmt: skip
def test_the_rate_of_an_optimiser_follows_the_schedule(shape, steps, warmup, shares):
    config = TrainConfig(steps=steps, lr=0.5, warmup=warmup, schedule=shape)
    optimizer = make_optimizer(nn.Linear(2, 2), config)
    schedule = make_schedule(optimizer, warmup, steps, shape)
    for step in range(steps):
        rate = optimizer.param_groups[0]["lr"]
        assert 0 < rate <= 0.5 and rate == pytest.approx(0.5 * shares.get(step, rate / 0.5))
        optimizer.step()
        schedule.step()
    assert 0 <= optimizer.param_groups[0]["lr"] <= 0.5


def test_only_matrices_decay():
    model = tiny_model()
    model.norm.weight.requires_grad_(False)
    matrices, others = make_optimizer(model, TrainConfig(steps=1)).param_groups
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert all(parameter.dim() >= 2 for parameter in matrices["params"])
    assert {*map(id, others["params"])} == {id(model.norm.bias), id(model.head.bias)}
    assert len(matrices["params"]) + 3 == len([*model.parameters()])


def test_buckets_hold_items_of_like_length():
    lengths = torch.randint(1, 200, (230,), generator=torch.Generator().manual_seed(0))
    plain, bucketed, again = (Batches(lengths, 10, 7, bucket) for bucket in (None, 8, 8))

    def padding(batches):
        found = [lengths[batches[step]] for step in range(23)]
        return sum(int((of.max() - of).sum()) for of in found)

    epoch = [item for step in range(23) for item in bucketed[step]]
    assert len(epoch) == len(set(epoch)) == 230
    assert padding(bucketed) < 0.25 * padding(plain)
    assert again[23 + 5] == bucketed[23 + 5] and again[5] == epoch[50:60]
    assert [again[step] for step in range(23)] != [again[step] for step in range(23, 46)]
    longest = [int(lengths[bucketed[step]].max()) for step in range(23)]
    assert longest != sorted(longest)
