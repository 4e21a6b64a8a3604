"""AutoInt is its equations, in the paper's form and in the published code's."""

import pytest
import torch

from regard.models import AutoIntConfig
from tests.models.table import BATCH, FIELDS, B, assert_same, dense, embedded, roused

H, K, L = 2, 3, 2
CASES = {
    "paper": {},
    "official": {"official": True},
    "plus": {"hidden_dims": (5, 4)},
}


def make(**options):
    torch.manual_seed(0)
    config = AutoIntConfig(
        fields=FIELDS, dim=4, num_heads=H, head_dim=K, num_layers=L, num_tasks=2, **options
    )
    return roused(config.build().double()).eval()


def oracle(params, options, b):
    official = options.get("official", False)
    act = torch.relu if official else (lambda x: x)
    e = embedded(params, "embedding", FIELDS, BATCH, b)
    first = torch.cat([torch.zeros(4).double() if x is None else x for x in e])
    for i in range(L):
        layer = f"layers.{i}"
        there = [m for m, x in enumerate(e) if x is not None]
        q, k, v, r = (
            {m: act(dense(params, f"{layer}.{name}", e[m])) for m in there}
            for name in ("query", "key", "value", "residual")
        )
        after = [None] * len(e)
        for m in there:
            heads = []
            for h in range(H):
                part = slice(h * K, (h + 1) * K)
                scores = [(q[m][part] * k[n][part]).sum() for n in there]
                exps = [(s / K**0.5 if official else s).exp() for s in scores]
                heads.append(
                    sum(w / sum(exps) * v[n][part] for w, n in zip(exps, there, strict=True))
                )
            z = torch.relu(torch.cat(heads) + r[m])
            if official:
                z = (z - z.mean()) / (z.var(unbiased=False) + 1e-8).sqrt()
                z = params[f"{layer}.norm.weight"] * z + params[f"{layer}.norm.bias"]
            after[m] = z
        e = after
    y = dense(
        params, "head", torch.cat([torch.zeros(H * K).double() if x is None else x for x in e])
    )
    if "hidden_dims" in options:
        hidden = torch.relu(dense(params, "deep.layers.0", first))
        y = y + dense(params, "deep_head", torch.relu(dense(params, "deep.layers.2", hidden)))
    return y


@pytest.mark.parametrize("name", CASES)
def test_it_is_its_equations(name):
    model, slow = make(**CASES[name]), make(**CASES[name])
    params = dict(slow.named_parameters())
    expected = torch.stack([oracle(params, CASES[name], b) for b in range(B)])
    assert_same(model(BATCH), expected, model, slow)


def test_maps_sum_to_one_and_are_zero_where_a_field_is_missing():
    maps = make().attention_maps(BATCH)
    sums = maps[0].sum(-1)
    assert len(maps) == L and ((sums - 1).abs() < 1e-12).logical_or(sums == 0).all()
    assert (maps[0][2, :, 1] == 0).all() and (maps[0][2, ..., 1] == 0).all()  # age is missing
