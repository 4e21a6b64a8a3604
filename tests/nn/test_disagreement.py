"""Disagreement of heads: the squared sums equal the paper's double loop over heads."""

import pytest
import torch
from torch.nn.functional import cosine_similarity

import regard
from regard import Mask, Observation, ShapeError, UnsupportedError
from regard.nn import disagreement
from regard.testing.counting import count

VALID = torch.tensor([[True] * 6 + [False] * 3, [False] * 2 + [True] * 7])


def observed(name="softmax", valid=VALID, **options):
    torch.manual_seed(0)
    mixer = regard.build(name, dim=24, num_heads=3, max_len=16, **options).double()
    x = torch.randn(2, 9, 24).double().requires_grad_()
    return mixer, x, mixer.observe(x, mask=Mask(valid=valid))


def double_loop(seen, kind):
    heads = {"subspace": seen.v, "position": seen.weights, "output": seen.heads}[kind]
    B, H = heads.shape[:2]
    total = 0.0
    for b in range(B):
        tokens = VALID[b].nonzero()[:, 0]
        for i in range(H):
            for j in range(H):
                a, c = heads[b, i, tokens], heads[b, j, tokens]
                position = kind == "position"
                total = total + ((a * c).abs() if position else cosine_similarity(a, c)).sum()
    return -total / H**2 / VALID.sum()


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


def test_absent_tokens_and_absent_examples_change_nothing_and_have_finite_gradients():
    heads = torch.randn(3, 2, 5, 4).double()
    valid = torch.arange(5) < torch.tensor([[5], [3], [0]])
    expected = disagreement(Observation(heads=heads[:2]), valid=valid[:2])
    one = Observation(heads=heads[:1])
    torch.testing.assert_close(disagreement(one), disagreement(one, valid=valid[:1]))
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
    for odd in (torch.zeros(2, 3), torch.zeros(1, 2, 3, 4).to_sparse(), 3):
        with pytest.raises(ShapeError, match=r"heads must be a dense float tensor \[B, H, N, n\]"):
            disagreement(Observation(heads=odd))
