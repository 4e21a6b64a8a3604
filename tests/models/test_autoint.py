"""AutoInt is its equations, in the paper's form and in the published code's."""

import pytest
import torch
import torch.nn.functional as F

from regard.models import AutoIntConfig
from regard.nn.fields import Categorical
from tests.models.table import BATCH, FIELDS, B, dense, embedded, padded, roused, rows

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
    y = model(BATCH)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)
    y.square().sum().backward()
    expected.square().sum().backward()
    for parameter, other in zip(model.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_padding_batch_saving_and_compiling(name):
    model, other = make(**CASES[name]), make(**CASES[name])
    y = model(BATCH)
    torch.testing.assert_close(model(padded(BATCH, 1, 2)), y, rtol=0, atol=1e-12)
    torch.testing.assert_close(model(rows(BATCH, slice(2, 3))), y[2:3], rtol=0, atol=1e-12)
    for parameter in other.parameters():
        parameter.data.zero_()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(BATCH), y)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(BATCH), y)


def test_the_order_of_the_fields_means_nothing():
    """Layers are equivariant: with the columns of the head moved along, the logits stay."""
    model = make()
    order = [4, 0, 5, 1, 3, 2]
    config = AutoIntConfig(
        fields=tuple(FIELDS[i] for i in order),
        dim=4,
        num_heads=H,
        head_dim=K,
        num_layers=L,
        num_tasks=2,
    )
    moved, state = config.build().double(), model.state_dict()
    state["head.weight"] = state["head.weight"].view(2, 6, -1)[:, order].flatten(1)
    moved.load_state_dict(state)
    torch.testing.assert_close(moved(BATCH), model(BATCH), rtol=0, atol=1e-12)
    maps, others = model.attention_maps(BATCH), moved.attention_maps(BATCH)
    for one, other in zip(maps, others, strict=True):
        torch.testing.assert_close(other, one[:, :, order][..., order], rtol=0, atol=1e-12)
    sums = maps[0].sum(-1)
    assert ((sums - 1).abs() < 1e-12).logical_or(sums == 0).all()
    assert (maps[0][2, :, 1] == 0).all() and (maps[0][2, ..., 1] == 0).all()  # age is missing


def test_layers_have_the_parameters_of_the_paper():
    """L layers of four matrices, 16 x 64 and then 64 x 64, and no biases."""
    model = AutoIntConfig(fields=FIELDS).build()
    count = sum(p.numel() for p in model.layers.parameters())
    assert count == 4 * (16 * 64 + 2 * 64 * 64)


def test_it_finds_planted_interactions():
    """Three of five fields act in two pairs, by whether both values are odd or even alike; none acts alone."""
    torch.manual_seed(0)
    fields = tuple(Categorical(f"f{i}", 6) for i in range(5))

    def draw(count):
        ids = torch.randint(2, 6, (5, count))
        sign = 1 - 2 * (ids % 2)
        logit = 2.5 * sign[2] * (sign[0] + sign[3])
        return {f"f{i}": x for i, x in enumerate(ids)}, logit, torch.bernoulli(logit.sigmoid())

    model = AutoIntConfig(fields=fields, dim=8, head_dim=8, num_layers=2).build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        batch, _, label = draw(256)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(batch)[:, 0], label).backward()
        optimizer.step()
    batch, logit, label = draw(4000)
    with torch.no_grad():
        found = model(batch)[:, 0]
    best = auc(logit, label)
    assert best > 0.8 and auc(found, label) > 0.98 * best, (best, auc(found, label))


def auc(scores, labels):
    positive, negative = scores[labels == 1][:, None], scores[labels == 0]
    return ((positive > negative).double() + (positive == negative).double() / 2).mean().item()
