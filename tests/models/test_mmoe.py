"""MMoE is its equations, and the models it is compared with are its special cases."""

import pytest
import torch

from regard import OptionError, ShapeError
from regard.lab.data.synthetic import generate_correlated_tasks
from regard.models import MMoEConfig
from tests.models.table import BATCH, FIELDS, B, dense, embedded, padded, roused, rows

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
    y = model(X)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    y.square().sum().backward()
    expected.square().sum().backward()
    for parameter, other in zip(model.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=0, atol=1e-11)
    sums = model.weights(X).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_fields_are_joined():
    model = make(fields=FIELDS, dim=2)
    params = dict(model.named_parameters())
    for b in range(B):
        e = embedded(params, "embedding", FIELDS, BATCH, b)
        x = torch.cat([torch.zeros(2).double() if row is None else row for row in e])
        torch.testing.assert_close(model(BATCH)[b], oracle(params, model.config, x))
    torch.testing.assert_close(model(padded(BATCH, 2, 1)), model(BATCH), rtol=0, atol=1e-12)
    alone = model(rows(BATCH, slice(1, 2)))
    torch.testing.assert_close(alone, model(BATCH)[1:2], rtol=0, atol=1e-12)


def test_one_expert_is_shared_bottom():
    gated, bare = make(num_experts=1), make(gate="none", num_experts=1)
    left = bare.load_state_dict(gated.state_dict(), strict=False)
    assert left.unexpected_keys == ["gate.score.weight"] and not left.missing_keys
    torch.testing.assert_close(gated(X), bare(X), rtol=0, atol=1e-14)


def test_gates_that_are_the_same_are_one_gate():
    many, one = make(), make(gate="one")
    state = one.state_dict() | {"gate.score.weight": one.gate.score.weight.repeat(3, 1, 1)}
    many.load_state_dict(state)
    torch.testing.assert_close(many(X), one(X), rtol=0, atol=1e-12)


def test_the_attention_gate_does_not_know_the_order_of_experts():
    model, moved = make(gate="attention_query"), make(gate="attention_query")
    for parameter in (*moved.experts.weights, *moved.experts.biases):
        parameter.data = parameter.data[[2, 0, 3, 1]]
    torch.testing.assert_close(moved(X), model(X), rtol=0, atol=1e-12)


def test_gate_parameters_are_counted_as_said():
    linear, attention = make(), make(gate="attention_query")
    assert sum(p.numel() for p in linear.gate.parameters()) == 3 * 4 * 6  # K n d
    assert sum(p.numel() for p in attention.gate.parameters()) == 3 * 4  # K E


def test_saving_and_compiling():
    for options in GATES.values():
        model, other = make(**options), make(**options)
        for parameter in other.parameters():
            parameter.data.zero_()
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(X), model(X))
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(X), model(X))


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


@pytest.mark.parametrize("gate", ["linear", "attention_query"])
def test_it_learns_two_tasks_that_are_little_alike(gate):
    drawn = generate_correlated_tasks(3500, rho=0.3, dim=20, num_sines=1)
    x, y = (torch.tensor(part).float() for part in drawn)
    torch.manual_seed(0)
    model = MMoEConfig(num_tasks=2, input_dim=20, gate=gate).build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        some = torch.randint(0, 3000, (128,))
        optimizer.zero_grad()
        (model(x[some]) - y[some]).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        left = (model(x[3000:]) - y[3000:]).square().mean(0) / y[3000:].var(0)
    assert (left < 0.2).all(), left
