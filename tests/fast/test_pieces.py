"""Sums in pieces of time: cuts change nothing."""

from functools import partial

import pytest
import torch

import regard
from regard import Mask
from regard.fast.cpu.efficient import piece_sizes
from regard.functional import efficient_attention, favor_attention, linear_attention
from regard.functional.linear import chosen_sums
from regard.functional.rows import Form, recorded
from tests.kept import kept_bytes

W = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
KERNELS = {
    "linear": lambda q, k, v, w, mask, impl: linear_attention(q, k, v, mask=mask, impl=impl),
    "efficient": lambda q, k, v, w, mask, impl: efficient_attention(q, k, v, mask=mask, impl=impl),
    "positive": favor_attention,
    "hyperbolic": partial(favor_attention, features="hyperbolic"),
}
CASES = [(name, True) for name in KERNELS] + [("positive", False), ("hyperbolic", False)]


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_pieces_give_what_the_plain_form_gives(name, causal):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(3, 2, 1103, 8, generator=generator, dtype=torch.float64) for _ in "qkv")
    leaves = [z.requires_grad_() for z in (q, 30 * k, v, W.clone())]
    valid = torch.arange(1103) < torch.tensor([[1103], [581], [1]])
    mask, results = Mask(causal=causal, valid=valid, compact=True), []
    for impl in ("plain", "pieces", Form("pieces", tile=100, chunk=7, room=1 << 16)):
        with recorded() as used:
            y = KERNELS[name](*leaves, mask=mask, impl=impl)
        assert used == (set() if impl == "plain" else {"pieces"})
        results.append((y, *torch.autograd.grad(y.cos().sum(), leaves, allow_unused=True)))
    for ours in results[1:]:
        for one, other in zip(ours, results[0], strict=True):
            if one is not None or other is not None:
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_piece_is_halved_down_to_a_token_where_keys_grow():
    k = torch.zeros(1, 1, 300, 2, dtype=torch.float64)
    k[0, 0, 137:, 1], k[0, 0, 138:, 1] = 100.0, 200.0
    sizes = piece_sizes(k, k[:, :, 0], 128)
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    assert {137, 138} <= set(starts) and starts[-1] == 300 and min(sizes) >= 1
    assert piece_sizes(k[:, :, :137], k[:, :, 0], 128) == [128, 9]


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_two_losses_share_what_is_kept(name, causal):
    q, k, v = (torch.randn(1, 2, 90, 8, dtype=torch.float64, requires_grad=True) for _ in "qkv")
    y = KERNELS[name](q, k, v, W, mask=Mask(causal=causal), impl=Form("pieces", tile=40))
    one = torch.autograd.grad(y.sum(), (q, k, v), retain_graph=True)
    assert all(map(torch.equal, one, torch.autograd.grad(y.sum(), (q, k, v))))


def test_sums_go_on_from_those_before():
    shapes = [(2, 3, 50, 4)] * 2 + [(2, 3, 50, 5), (2, 3, 4, 5), (2, 3, 4)]
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    a, e, v, S, z = leaves
    results = []
    for impl in ("plain", Form("pieces", chunk=7)):
        made = chosen_sums(a, e, v, None, S, z, impl=impl)
        loss = sum(part.cos().sum() for part in made)
        results.append((*made, *torch.autograd.grad(loss, leaves)))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


def test_small_features_are_left_to_the_plain_form():
    q = torch.zeros(1, 2, 50, 8)
    with recorded() as used:
        favor_attention(q, q, q, W.float(), mask=Mask(causal=True))
    assert used == {"plain"}


def test_a_key_that_is_no_number_ends_too():
    q, k, v = (torch.ones(2, 1, 200, 4) for _ in "qkv")
    k[0, 0, 70:] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30])
    k[1, 0, 90] = 1000.0
    y = efficient_attention(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(y[1], v[1])


@pytest.mark.parametrize("causal", [True, False])
def test_training_keeps_outputs_and_borders_alone(causal):
    torch.manual_seed(0)
    mixer = regard.build("performer", dim=32, num_heads=2, num_features=512, impl="pieces")
    x = torch.randn(1, 16384, 32)
    assert kept_bytes(lambda: mixer(x, mask=Mask(causal=causal))) < 2 * 16384 * 512 * 4
