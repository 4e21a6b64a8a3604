"""Schedule, decay groups, and the order of batches."""

import pytest
import torch
from torch import nn

from regard.lab.train import TrainConfig
from regard.lab.train.batches import Batches
from regard.lab.train.optimizer import (
    decay_groups,
    make_optimizer,
    make_schedule,
    warmup_cosine,
    warmup_linear,
)
from tests.lab.train.tiny import tiny_model


def test_schedule_values():
    assert [warmup_cosine(step, 3, 11) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert warmup_cosine(7, 3, 11) == pytest.approx(0.5)
    assert warmup_cosine(5, 3, 11) == pytest.approx(0.5 + 0.5 * 2**-0.5)
    assert warmup_cosine(11, 3, 11) == pytest.approx(0.0)
    assert warmup_cosine(0, 0, 1) == 1.0
    assert min(warmup_cosine(step, 3, 11) for step in range(11)) > 0


def test_the_rate_of_an_optimiser_follows_the_schedule():
    config = TrainConfig(steps=20, lr=0.5, warmup=0.2, schedule="linear")
    optimizer = make_optimizer(nn.Linear(2, 2), config)
    schedule = make_schedule(optimizer, config.warmup, 20, config.schedule)
    for step in range(20):
        assert optimizer.param_groups[0]["lr"] == 0.5 * warmup_linear(step, 4, 20)
        optimizer.step()
        schedule.step()


def test_only_matrices_decay():
    model = tiny_model()
    model.norm.weight.requires_grad_(False)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices, others = decay_groups(model, 0.1)
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert all(parameter.dim() >= 2 for parameter in matrices["params"])
    assert [names[id(parameter)] for parameter in others["params"]] == ["norm.bias", "head.bias"]
    assert len(matrices["params"]) + 3 == len(names)


def test_buckets_hold_items_of_like_length():
    lengths = torch.randint(1, 200, (230,), generator=torch.Generator().manual_seed(0))
    options = {"size": 230, "batch_size": 10, "seed": 7}
    plain = Batches(**options)
    bucketed = Batches(**options, bucket=8, lengths=lengths)

    def padding(batches):
        found = [lengths[batches[step]] for step in range(23)]
        return sum(int((of.max() - of).sum()) for of in found)

    epoch = [item for step in range(23) for item in bucketed[step]]
    assert len(epoch) == len(set(epoch)) == 230
    assert padding(bucketed) < 0.25 * padding(plain)
    again = Batches(**options, bucket=8, lengths=lengths)
    assert again[23 + 5] == bucketed[23 + 5] and again[5] == epoch[50:60]
    assert [again[step] for step in range(23)] != [again[step] for step in range(23, 46)]
    longest = [int(lengths[bucketed[step]].max()) for step in range(23)]
    assert longest != sorted(longest)
