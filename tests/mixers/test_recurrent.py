"""Recurrent mixers beside the published code that runs on a CPU, and what their papers say of limits and recall."""

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.functional.delta import decayed_attention, delta_attention
from regard.testing.subject import normal

B, H, T, K, V = 2, 3, 70, 6, 5


def terms():
    q, k = (F.normalize(normal(B, H, T, K, seed=s), dim=-1) for s in (1, 2))
    g = -normal(B, H, T, seed=3).abs()
    return q, k, normal(B, H, T, V, seed=4), normal(B, H, T, seed=5).sigmoid(), g


def test_decays_too_strong_for_a_quotient_of_exponentials_stay_finite_and_right():
    q, k, v, b, g = terms()
    strong = 200 * g[..., None].expand(-1, -1, -1, K).contiguous().requires_grad_()
    for y, S in (delta_attention(q, k, v, b, strong), decayed_attention(q, k, v, strong)):
        assert torch.isfinite(y).all() and torch.isfinite(S).all()
        assert torch.isfinite(torch.autograd.grad(y.sum(), strong, retain_graph=True)[0]).all()


def test_decays_of_bfloat16_are_summed_in_float32():
    q, k, v, _, g = (z.bfloat16() for z in terms())
    g = 8 * g  # sums of many hundred, whose differences bfloat16 does not hold
    y, S = decayed_attention(q, k, v, g)
    exact, last = decayed_attention(*(z.double() for z in (q, k, v, g)))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=0.02)
    torch.testing.assert_close(S.double(), last, rtol=0, atol=0.02)


def test_decays_that_are_constants_do_not_depend_on_the_type_of_the_tokens():
    mixer = regard.build("scalar_decay", dim=24, num_heads=3, form="lightning").bfloat16()
    x = torch.zeros(1, 2, 24, dtype=torch.bfloat16)
    g = mixer._terms(x, *mixer._split(x, None), None)[4]
    expected = -(2 ** (-8 * torch.arange(1, 4, dtype=torch.float64) / 3))
    torch.testing.assert_close(g[0, :, 0].double(), expected)


def test_a_key_of_hgrn2_that_empties_the_state_is_finite_and_so_is_its_gradient():
    mixer = regard.build("gated_linear", dim=24, num_heads=3, form="hgrn2")
    with torch.no_grad():
        mixer.key.weight.mul_(1e3)
    x = normal(2, T, 24).float().requires_grad_()
    y = mixer(x, mask=regard.Mask(causal=True))
    assert torch.isfinite(y).all()
    assert torch.isfinite(torch.autograd.grad(y.sum(), x)[0]).all()


@pytest.mark.parametrize("channels", [(), (K,)])
def test_a_token_that_keeps_nothing_is_a_beginning(channels):
    q, k, v, b, _ = terms()
    g = -normal(B, H, T, *channels, seed=3).abs()
    at = 33
    g[:, :, at] = -torch.inf
    for call in (lambda *z: decayed_attention(*z[:3], z[4]), delta_attention):
        for dtype, close in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
            given = [z.to(dtype) for z in (q, k, v, b, g)]
            y, S = call(*given)
            alone, end = call(*(z[:, :, at:] for z in given))
            torch.testing.assert_close(y[:, :, at:], alone, rtol=0, atol=close)
            torch.testing.assert_close(S, end, rtol=0, atol=close)
            before, _ = call(*(z[:, :, :at] for z in given))
            torch.testing.assert_close(y[:, :, :at], before, rtol=0, atol=close)
