"""Digits: the exponential that does not slow down where it vanishes, and sums of mixed chunks."""

import math
from functools import partial

import pytest
import torch

from regard import Mask, UnknownNameError, UnsupportedError, build
from regard.functional import (
    efficient_attention,
    linear_attention,
    luong_attention,
    pattern_attention,
    scored_attention,
    squared_relu_attention,
    window_attention,
)
from regard.functional.patterns import Window
from regard.functional.rows import exp, exp_
from regard.functional.scored import Windows
from regard.mixers.mixed_chunk import MixedChunk
from regard.testing.laws.streaming import feed


def test_equals_exp_and_is_exactly_zero_at_minus_infinity():
    x = torch.tensor([0.0, 1.0, -1.0, 20.0, -80.0, -200.0, -math.inf])
    torch.testing.assert_close(exp(x), x.exp(), rtol=1e-5, atol=0)
    assert exp(x)[-1] == 0
    y = x.clone()
    assert exp_(y) is y
    torch.testing.assert_close(y, exp(x), rtol=0, atol=0)


def test_a_function_takes_the_names_of_its_own_replacements_alone():
    q = torch.randn(1, 2, 6, 4)
    for function in (scored_attention, linear_attention):
        with pytest.raises(UnknownNameError, match="unknown impl 'fussed'"):
            function(q, q, q, impl="fussed")
        with pytest.raises(UnsupportedError, match="has no implementation 'fused'"):
            function(q, q, q, impl="fused")


def test_windows_and_patterns_take_tensors_of_several_types_under_autocast():
    q, v = torch.randn(1, 2, 20, 4), torch.randn(1, 2, 20, 6).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in (
            partial(window_attention, window=2),
            partial(pattern_attention, pattern=Window(2, 2)),
        ):
            torch.testing.assert_close(call(q, q, v), call(q, q, v, impl="plain"))


@pytest.mark.parametrize("impl", ["auto", "plain"])
def test_queries_before_the_first_key_leave_gradients_finite(impl):
    torch.manual_seed(0)
    for keys, valid in ((7, None), (100, torch.arange(100)[None] >= 60)):
        q, k, v = (torch.randn(1, 1, n, 4).requires_grad_() for n in (100, keys, keys))
        y = efficient_attention(q, k, v, mask=Mask(causal=True, valid=valid), impl=impl)
        assert all(z.isfinite().all() for z in torch.autograd.grad(y.sum(), (q, k, v)))


def test_a_hidden_pair_whose_square_no_number_holds_is_hidden():
    q = torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    k = q.clone()
    k[:, :, 2] = 1e30 * q[:, :, 0].sign()
    q, k = q.requires_grad_(), k.requires_grad_()
    for mask in (Mask(causal=True), Mask(valid=torch.tensor([[True, True, False]]))):
        y = squared_relu_attention(q, k, torch.ones_like(q), mask=mask)[:, :, :2]
        assert all(z.isfinite().all() for z in (y, *torch.autograd.grad(y.sum(), (q, k))))


@pytest.mark.parametrize("centre", [14.0, 15.0, 1000.0])
def test_a_far_gaussian_has_weights_of_sum_one(centre):
    q, k, v = (torch.ones(1, 1, n, 4).requires_grad_() for n in (1, 3, 3))
    start, last = torch.zeros(1, 1, 1).long(), torch.ones(1, 1).long()
    windows = Windows(start, 2, last, centre=torch.full((1, 1, 1), centre))
    y = luong_attention(q, k, v, windows=windows, renormalise=True)
    torch.testing.assert_close(y, torch.ones_like(y))
    assert all(z.isfinite().all() for z in torch.autograd.grad(y.sum(), (q, v)))


@pytest.mark.parametrize("causal", [False, True])
def test_sums_between_chunks_are_not_rounded_to_bfloat16(causal):
    """Four hundred chunks of like tokens: a sum kept in bfloat16 would lose one chunk after another."""
    torch.manual_seed(0)
    mixer = MixedChunk(64, num_heads=1, chunk_size=64).bfloat16()
    x = torch.randn(64).expand(1, 25600, 64).bfloat16().contiguous()
    with torch.no_grad():
        y, exact = mixer(x, mask=Mask(causal)), mixer.float()(x.float(), mask=Mask(causal))
    assert y.dtype == torch.bfloat16
    assert (y - exact).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize("name", ["linear", "scalar_decay", "gated_linear", "performer"])
def test_sums_of_large_tokens_are_not_rounded_to_float16_by_autocast(name):
    torch.manual_seed(0)
    options = {"features": "relu"} if name == "performer" else {}
    mixer, x = build(name, dim=24, num_heads=3, **options), 30 * torch.randn(1, 3000, 24)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        streamed, _ = feed(mixer, x, mixer.initial_state(1), [500] * 6)
        found = mixer(x, mask=Mask(causal=True)), streamed
    for y in found:
        error = (y - mixer(x, mask=Mask(causal=True))).norm() / y.norm()
        assert error < 0.02


@torch.no_grad()
def test_a_stream_of_performer_in_float16_is_as_near_as_a_row():
    torch.manual_seed(0)
    mixer, x = build("performer", dim=32, num_heads=2).half(), 5 * torch.randn(2, 24, 32)
    row = mixer(x.half(), mask=Mask(causal=True))
    streamed, _ = feed(mixer, x.half(), mixer.initial_state(2), [1] * 24)
    exact = mixer.double()(x.half().double(), mask=Mask(causal=True))
    for found in (row, streamed):
        assert (found - exact).norm() < 0.002 * exact.norm()
