"""DIN is its equations, does not mind padding or order, and finds what mean pooling cannot."""

import pytest
import torch

from regard import OptionError, ShapeError
from regard.models import DINConfig
from regard.nn.fields import Categorical, Sequence
from tests.models.table import BATCH, FIELDS, B, assert_same, dense, embedded, roused
from tests.pools import oracle as pools

BOTH = ("history", "shops")
CASES = {
    "outer": {"interaction": "outer"},
    "elementwise": {"interaction": "elementwise", "activation": "prelu"},
    "din_code": {"interaction": "din_code", "activation": "sigmoid", "normalise": True},
}


def make(pool="target_query", history=BOTH, **options):
    torch.manual_seed(0)
    config = DINConfig(
        fields=FIELDS,
        history=history,
        dim=3,
        pool=pool,
        pool_options=options,
        hidden_dims=(5, 4),
        num_tasks=2,
    )
    return roused(config.build().double()).eval()


def oracle(params, options, b):
    item, shop = (params[f"embedding.tables.of_{name}.weight"] for name in ("items", "shop"))

    def look_up(i, s):
        return torch.cat(
            [t[j] if j else torch.zeros(3).double() for t, j in ((item, i), (shop, s))]
        )

    pairs = zip(BATCH["history"][b].tolist(), BATCH["shops"][b].tolist(), strict=True)
    tokens = [look_up(i, s) for i, s in pairs if i or s]
    candidate = look_up(int(BATCH["items"][b]), int(BATCH["shop"][b]))
    interest = torch.zeros(6).double()
    if tokens:
        own = {name.removeprefix("pool."): p for name, p in params.items()}
        kind = (options["interaction"], options.get("activation", "dice"))
        weigh = pools.target_query(*kind, options.get("normalise", False))
        for w, token in zip(weigh(own, tokens, [candidate])[0], tokens, strict=True):
            interest = interest + w * token
    others = [field for field in FIELDS if field.name not in BOTH]
    e = embedded(params, "embedding", others, BATCH, b)
    x = torch.cat([interest, *(torch.zeros(3).double() if row is None else row for row in e)])
    for i in (0, 2):
        s, dice = dense(params, f"network.layers.{i}", x), f"network.layers.{i + 1}"
        z = (s - params[f"{dice}.mean"]) / (params[f"{dice}.variance"] + 1e-8).sqrt()
        x = z.sigmoid() * s + (1 - z.sigmoid()) * params[f"{dice}.alpha"] * s
    return dense(params, "head", x)


@pytest.mark.parametrize("name", CASES)
def test_it_is_its_equations(name):
    model, slow = make(**CASES[name]), make(**CASES[name])
    params = dict(slow.named_parameters()) | dict(slow.named_buffers())
    expected = torch.stack([oracle(params, CASES[name], b) for b in range(B)])
    assert_same(model(BATCH), expected, model, slow)


def test_weights_are_there_for_display():
    weights = make(interaction="din_code", normalise=True).weights(BATCH)
    assert weights.shape == (B, 4)
    torch.testing.assert_close(weights.sum(1), torch.tensor([1.0, 1, 0, 1]).double())
    assert (weights[1, [1]] == 0).all() and (weights[3, 1:] == 0).all()


def test_batch_l2_steps_each_id_that_occurs_by_its_count():
    model = make()
    counts = {"items": torch.arange(9), "shop": torch.full((5,), 2), "user": torch.full((7,), 4)}
    model.batch_l2(BATCH, counts).backward()
    weight = model.embedding.table("items").weight
    occurs = set(BATCH["items"].tolist()) | set(BATCH["history"].flatten().tolist())
    for j in range(9):
        n = max(1, j)
        wanted = weight[j] / n if j in occurs - {0} else torch.zeros(3).double()
        torch.testing.assert_close(weight.grad[j], wanted)
    assert (model.embedding.table("user").weight.grad[[0, 4, 5]] == 0).all()


def test_what_does_not_fit_is_refused():
    other = Categorical("other", 4)
    for history, message in [
        ((), "must be a tuple"),
        ("history", "must be a tuple"),
        (("user",), "'user' is not a Sequence"),
        (("h",), "no Categorical field of that name"),
    ]:
        with pytest.raises(OptionError, match=message):
            DINConfig(fields=(*FIELDS, Sequence("h", other)), history=history)
    with pytest.raises(OptionError, match="takes no query"):
        make(pool="context_query")
    with pytest.raises(ShapeError, match="histories must be aligned"):
        make()(BATCH | {"shops": BATCH["shops"][:, :2]})
