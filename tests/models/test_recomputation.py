"""Under gradient checkpointing outputs, gradients and moving averages are the same."""

from copy import deepcopy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from regard.models import (
    AutoIntConfig,
    DINConfig,
    FactorizationMachineConfig,
    HANConfig,
    MMoEConfig,
    pad_documents,
)
from tests.models.table import BATCH, FIELDS, roused

TOKENS, VALID = pad_documents([[[3, 1, 4], [1], [5, 9, 2, 6]], [[7]], [[], [2, 7, 1]]])
SIZES = {"vocab_size": 11, "num_classes": 3, "dim": 5, "hidden_dim": 4, "attention_dim": 3}
DOCUMENTS = ((TOKENS,), {"valid": VALID})
TABLE = ((BATCH,), {})
CASES = {
    "han": (HANConfig(**SIZES), DOCUMENTS),
    "han_mixed": (HANConfig(**SIZES, num_heads=2, word_encoder="softmax"), DOCUMENTS),
    "autoint": (AutoIntConfig(fields=FIELDS, dim=4, head_dim=3, hidden_dims=(5,)), TABLE),
    "autoint_dropout": (AutoIntConfig(fields=FIELDS, dim=4, head_dim=3, dropout=0.3), TABLE),
    "din": (DINConfig(fields=FIELDS, history=("history", "shops"), dim=3), TABLE),
    "din_linear": (
        DINConfig(
            fields=FIELDS,
            history=("history",),
            dim=4,
            pool="cross",
            pool_options={"mixer": "linear", "num_heads": 2},
        ),
        TABLE,
    ),
    "mmoe": (MMoEConfig(fields=FIELDS, num_tasks=2, gate_dropout=0.2), TABLE),
    "factorization_machine": (FactorizationMachineConfig(fields=FIELDS), TABLE),
}


@pytest.mark.parametrize("name", CASES)
def test_computing_again_changes_nothing(name):
    config, (args, options) = CASES[name]
    torch.manual_seed(0)
    plain = roused(config.build().double()).train()
    again = deepcopy(plain)
    found = []
    for model, run in ((plain, plain), (again, lambda *a, **k: checkpoint(again, *a, use_reentrant=False, **k))):  # fmt: skip
        torch.manual_seed(1)
        y = run(*args, **options)
        y.square().sum().backward()
        found.append((y, [p.grad for p in model.parameters()], list(model.buffers())))
    (y, grads, buffers), (other, other_grads, other_buffers) = found
    assert torch.equal(y, other)
    for one, two in zip([*grads, *buffers], [*other_grads, *other_buffers], strict=True):
        assert (one is None) == (two is None)
        assert one is None or torch.equal(one, two)
