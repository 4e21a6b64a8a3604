"""MMoE is its equations, and the models it is compared with are its special cases."""

import pytest
import torch

from regard import OptionError, ShapeError
from regard.models import MMoEConfig
from tests.models.table import BATCH, FIELDS, B, assert_same, dense, embedded, roused

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)).double()
GATES = {
    "linear": {},
    "one": {"gate": "one"},
    "attention_query": {"gate": "attention_query"},
    "dot": {"gate": "attention_query", "gate_options": {"score": "dot", "norm_keys": False}},
    "none": {"gate": "none", "num_experts": 1},
}


def make(**options):
    torch.manual_seed(0)
    given = {"input_dim": 6} if "fields" not in options else {}
    given |= {"num_tasks": 3, "num_experts": 4, "expert_dims": (5, 4), "tower_dim": 3}
    return roused(MMoEConfig(**(given | options)).build().double()).eval()


def oracle(params, config, x):
    n, outputs = config.num_experts, []
    for i in range(n):
        hidden = x
        for layer in range(2):
            weight = params[f"experts.weights.{layer}"][i]
            hidden = torch.relu(hidden @ weight + params[f"experts.biases.{layer}"][i])
        outputs.append(hidden)
    logits = []
    for k in range(config.num_tasks):
        if config.gate == "none":
            scores = [x.new_zeros(())]
        elif config.gate == "attention_query":
            c = params["gate.context.query"][k]
            scale = 1 if config.gate_options.get("score") == "dot" else len(c) ** 0.5
            scores = [(c * f).sum() / scale for f in outputs]
        else:
            W = params["gate.score.weight"][k if config.gate == "linear" else 0]
            scores = [(W[i] * x).sum() for i in range(n)]
        total = sum(s.exp() for s in scores)
        fused = sum(s.exp() / total * f for s, f in zip(scores, outputs, strict=True))
        hidden = torch.relu(dense(params, f"towers.{k}.0", fused))
        logits.append(dense(params, f"towers.{k}.2", hidden))
    return torch.cat(logits)


@pytest.mark.parametrize("name", GATES)
def test_it_is_its_equations(name):
    model, slow = make(**GATES[name]), make(**GATES[name])
    params = dict(slow.named_parameters())
    expected = torch.stack([oracle(params, slow.config, x) for x in X])
    assert_same(model(X), expected, model, slow, atol=1e-12, of_gradients=1e-11)
    sums = model.weights(X).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_fields_are_joined():
    model = make(fields=FIELDS, dim=2)
    params = dict(model.named_parameters())
    for b in range(B):
        e = embedded(params, "embedding", FIELDS, BATCH, b)
        x = torch.cat([torch.zeros(2).double() if row is None else row for row in e])
        torch.testing.assert_close(model(BATCH)[b], oracle(params, model.config, x))


def test_what_does_not_fit_is_refused():
    for options, message in [
        ({"gate": "none"}, "has one expert: num_experts is 4"),
        ({"gate": "soft"}, r"gate \('soft'\) must be one of"),
        ({"gate_options": {"score": "dot"}}, "has no options"),
        ({"input_dim": None}, "pass input_dim"),
        ({"expert_dims": ()}, "at least one width"),
    ]:
        with pytest.raises(OptionError, match=message):
            make(**options)
    with pytest.raises(ShapeError, match=r"x must be a tensor \[B, 6\]"):
        make()(X[:, :5])
