import pytest
import torch

from regard import OptionError, ShapeError
from regard.models import (
    CompressedInteractionConfig,
    CrossNetworkConfig,
    FactorizationMachineConfig,
    LogisticRegressionConfig,
)
from regard.nn.fields import Categorical, Numeric, Sequence
from tests.models.table import BATCH, FIELDS, ITEM, B, dense, embedded, roused

CONFIGS = [
    LogisticRegressionConfig(fields=FIELDS, num_tasks=2),
    FactorizationMachineConfig(fields=FIELDS, num_tasks=2, dim=3),
]
PRODUCTS = [
    CrossNetworkConfig(fields=FIELDS, num_tasks=2, dim=3, num_layers=2),
    CrossNetworkConfig(fields=FIELDS, num_tasks=2, dim=3, num_layers=3, hidden_dims=(5,)),
    CompressedInteractionConfig(fields=FIELDS, num_tasks=2, dim=3, maps=(4, 2)),
    CompressedInteractionConfig(fields=FIELDS, num_tasks=2, dim=3, maps=(3,), hidden_dims=(5,)),
]


@pytest.mark.parametrize("config", PRODUCTS, ids=lambda c: f"{c.name}{len(c.hidden_dims)}")
def test_products_of_fields_are_their_formulas(config):
    model = roused(config.build().double())
    params = dict(model.named_parameters())

    def deep(x):
        return dense(params, "deep.layers.0", x).relu()

    for b in range(B):
        found = embedded(params, "embedding", FIELDS, BATCH, b)
        e = [torch.zeros(3).double() if row is None else row for row in found]
        joined = torch.cat(e)
        if config.name == "cross_network":
            x = joined
            for w, bias in zip(params["weights"], params["biases"], strict=True):
                x = torch.stack([first * sum(w * x) for first in joined]) + bias + x
            last = torch.cat([x, deep(joined)]) if config.hidden_dims else x
            expected = dense(params, "head", last)
        else:
            linear = [e for e in embedded(params, "linear", FIELDS, BATCH, b) if e is not None]
            maps, sums = e, []
            for layer in range(len(config.maps)):
                maps = [
                    sum(of[i, j] * maps[i] * e[j] for i in range(len(maps)) for j in range(len(e)))
                    for of in params[f"weights.{layer}"]
                ]
                sums += [row.sum() for row in maps]
            expected = sum(linear) + dense(params, "head", torch.stack(sums))
            if config.hidden_dims:
                expected = expected + dense(params, "deep_head", deep(joined))
        torch.testing.assert_close(model(BATCH)[b], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_each_is_its_formula(config):
    model = roused(config.build().double())
    params = dict(model.named_parameters())
    for b in range(B):
        linear = [e for e in embedded(params, "linear", FIELDS, BATCH, b) if e is not None]
        expected = params["bias"] + sum(linear)
        if config.name == "factorization_machine":
            found = [e for e in embedded(params, "embedding", FIELDS, BATCH, b) if e is not None]
            for i, one in enumerate(found):
                for other in found[:i]:
                    expected = expected + (one * other).view(2, 3).sum(1)
        torch.testing.assert_close(model(BATCH)[b], expected, rtol=0, atol=1e-12)


def test_what_does_not_fit_is_refused():
    model = LogisticRegressionConfig(fields=FIELDS).build().double()
    for change, message in [
        ({"user": None}, r"user must be int64 or int32 ids \[B\], got None"),
        ({"user": BATCH["user"][:2]}, "user has batch 2"),
        ({"user": BATCH["user"].float()}, "user must be int64 or int32"),
        ({"age": BATCH["age"].long()}, "age must be floating point"),
        ({"history": BATCH["user"]}, r"history must be int64 or int32 ids \[B, T\], got"),
        ({"user": BATCH["user"] + 1}, "user holds id 7, outside its 7 values"),
    ]:
        with pytest.raises(ShapeError, match=message):
            model(BATCH | change)
    with pytest.raises(OptionError, match="two fields are called 'items'"):
        LogisticRegressionConfig(fields=(ITEM, Numeric("items")))
    with pytest.raises(OptionError, match="share one vocabulary"):
        LogisticRegressionConfig(fields=(ITEM, Sequence("h", Categorical("items", 10))))
    with pytest.raises(OptionError, match="at least one layer"):
        CompressedInteractionConfig(maps=())
    with pytest.raises(OptionError, match="without dots"):
        Categorical("a.b", 3)
