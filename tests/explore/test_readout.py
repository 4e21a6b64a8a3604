"""The readout: influence is the Jacobian. That weights are those really used is a law (`map`, with `reference`)."""

import pytest
import torch
from torch.autograd.functional import jacobian

import regard
from regard import Mask
from regard.explore import influence, kind_of, readout
from regard.testing.subject import Subject
from tests.laws.catalogue import factory


def blocks(mixer, x, mask):
    """|dy_t / dx_s| from torch's own Jacobian of one row."""
    found = [jacobian(lambda z: mixer(z[None], mask=mask)[0], row) for row in x]
    return torch.stack(found).square().sum((2, 4)).sqrt()


@pytest.mark.parametrize("name", ["fnet", "mlp_mixer", "gau", "compressed"])
def test_influence_is_the_norm_of_the_jacobians_blocks(name):
    subject = Subject(factory(name, {}))
    mixer, x = subject.make(), subject.tokens(2, 3)
    found = readout(mixer, x, measure="auto" if name == "mlp_mixer" else "influence")
    assert found.kind == "influence" and found.values.shape == (2, 1, 3, 3)
    torch.testing.assert_close(found.values[:, 0], blocks(mixer, x, Mask()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["local", "linear", "mlp_mixer"])
def test_influence_honours_masks_and_padding(name):
    subject = Subject(factory(name, {}))
    mixer, x = subject.make(), subject.tokens(1, 6)
    causal = bool(mixer.capabilities.causal)
    valid = torch.tensor([[True, True, False, True, True, False]])
    found = readout(mixer, x, mask=Mask(causal=causal, valid=valid), measure="influence")
    norms = found.values[0, 0]
    assert norms[~valid[0]].eq(0).all() and norms[:, ~valid[0]].eq(0).all()
    assert norms[valid[0]].gt(0).any(1).all()
    assert not causal or norms.triu(1).eq(0).all()


def test_influence_of_a_context_has_its_length():
    subject = Subject(factory("linear", {}))
    x, context = subject.tokens(1, 3), subject.tokens(1, 7)
    found = readout(subject.make(), x, context=context, measure="influence")
    assert found.values.shape == (1, 1, 3, 7) and found.values.gt(0).all()


def test_probes_estimate_the_norm_and_chunks_change_nothing():
    subject = Subject(factory("fnet", {}))
    mixer, x = subject.make(), subject.tokens(1, 4)
    exact = influence(mixer, x)
    torch.testing.assert_close(influence(mixer, x, chunk=7), exact, rtol=1e-12, atol=1e-12)
    squares = [influence(mixer, x, probes=100, seed=seed).square() for seed in range(4)]
    ratio = torch.stack(squares).mean(0) / exact.square()
    assert (ratio - 1).abs().max() < 0.2


def test_kinds_follow_from_the_values():
    rows = {"stochastic": [0.25, 0.75], "nonnegative": [0.25, 0.7], "signed": [1.5, -0.5]}
    for kind, row in rows.items():
        assert kind_of(torch.tensor([[[row, [0.0, 0.0]]]])) == kind


def test_wrong_requests_are_refused():
    mixer, x = factory("softmax", {})(), torch.zeros(1, 3, 24)
    with pytest.raises(regard.OptionError, match=r"measure .* must be one of"):
        readout(mixer, x, measure="entropy")
    with pytest.raises(regard.ShapeError, match=r"x .* must be a dense float tensor \[B S D\]"):
        influence(mixer, x[0])
    with pytest.raises(regard.ShapeError, match=r"function\(x\) must be"):
        influence(lambda z: z.sum(1), x)
