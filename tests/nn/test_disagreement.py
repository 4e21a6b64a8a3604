"""Disagreement of heads: the squared sums equal the paper's double loop over heads."""

import math

import pytest
import torch

import regard
from regard import Mask, Observation, OptionError, ShapeError, UnsupportedError
from regard.nn import disagreement
from regard.testing.counting import count

VALID = torch.tensor([[True] * 6 + [False] * 3, [False] * 2 + [True] * 7])


def observed(name="softmax", valid=VALID, **options):
    torch.manual_seed(0)
    mixer = regard.build(name, dim=24, num_heads=3, max_len=16, **options).double()
    x = torch.randn(2, 9, 24).double().requires_grad_()
    return mixer, x, mixer.observe(x, mask=Mask(valid=valid))


def cos(a, b):
    return (a * b).sum() / (a.norm() * b.norm())


def double_loop(seen, kind, valid=VALID):
    heads = {"subspace": seen.v, "position": seen.weights, "output": seen.heads}[kind]
    B, H = heads.shape[:2]
    total = 0.0
    for b in range(B):
        tokens = [n for n in range(heads.shape[2]) if valid[b, n]]
        for i in range(H):
            for j in range(H):
                a, c = heads[b, i, tokens], heads[b, j, tokens]
                if kind == "position":
                    total = total + (a * c).abs().sum()
                else:
                    total = total + sum(cos(a[n], c[n]) for n in range(len(tokens)))
    return -total / H**2 / valid.sum()


@pytest.mark.parametrize("kind", ["subspace", "position", "output"])
@pytest.mark.parametrize("name", ["softmax", "linformer"])
def test_value_and_gradients_equal_the_double_loops_with_padding_left_out(kind, name):
    mixer, x, seen = observed(name)
    leaves = [x, mixer.heads.value.weight if kind != "position" else mixer.heads.query.weight]
    ours, theirs = disagreement(seen, kind, valid=VALID), double_loop(seen, kind)
    torch.testing.assert_close(ours, theirs)
    gradients = torch.autograd.grad(ours, leaves, retain_graph=True)
    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    torch.testing.assert_close(gradients, torch.autograd.grad(theirs, leaves))


def test_range_and_its_ends():
    same = torch.randn(2, 1, 5, 4).expand(-1, 3, -1, -1)
    torch.testing.assert_close(disagreement(Observation(v=same), "subspace"), torch.tensor(-1.0))
    angles = torch.tensor([0.0, 1.0, 2.0]) * 2 * math.pi / 3
    star = torch.stack([angles.cos(), angles.sin()], -1)[None, :, None].expand(2, -1, 5, -1)
    found = disagreement(Observation(heads=star), "output")
    torch.testing.assert_close(found, torch.tensor(0.0), rtol=0, atol=1e-6)
    apart = torch.eye(3).repeat(2, 1, 1)[:, :, None, :]
    assert disagreement(Observation(weights=apart), "position") == -1 / 3  # i = j alone


def test_absent_tokens_and_absent_examples_change_nothing_and_have_finite_gradients():
    heads = torch.randn(3, 2, 5, 4).double()
    valid = torch.arange(5) < torch.tensor([[5], [3], [0]])
    expected = disagreement(Observation(heads=heads[:2]), valid=valid[:2])
    heads[~valid[:, None].expand(-1, 2, -1)] = float("nan")
    heads.requires_grad_()
    found = disagreement(Observation(heads=heads), valid=valid)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found, heads)
    assert gradient.isfinite().all()
    assert disagreement(Observation(heads=heads), valid=torch.zeros_like(valid)) == 0


def test_no_more_is_stored_than_the_weights_that_exist():
    weights = torch.rand(1, 32, 64, 64, device="meta")
    used = count(lambda: disagreement(Observation(weights=weights), "position")).peak_bytes
    assert used <= 3 * weights.numel() * 4


@pytest.mark.parametrize("name", ["linear", "performer", "efficient", "local"])
@pytest.mark.parametrize("kind", ["subspace", "output"])
def test_the_term_costs_no_square_of_the_length(kind, name):
    with torch.device("meta"):
        mixer = regard.build(name, dim=24, num_heads=3)
        xs = [torch.randn(1, T, 24) for T in (2048, 8192)]
    terms = [count(lambda x=x: disagreement(mixer.observe(x, weights=False), kind)) for x in xs]
    assert terms[1].peak_bytes < 5 * terms[0].peak_bytes


def test_what_is_wrong_is_named():
    _, _, seen = observed("compressed", valid=None)
    with pytest.raises(UnsupportedError, match="'position': the mixer's observation has no"):
        disagreement(seen, "position")
    with pytest.raises(ShapeError, match=r"\[2, 9\], got \[2, 8\]"):
        disagreement(seen, "output", valid=VALID[:, 1:])
    with pytest.raises(OptionError, match=r"kind \(.heads.\) must be one of"):
        disagreement(seen, "heads")
