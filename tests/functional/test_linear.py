"""Kernel attention: keys of any size, states beyond a group of chunks, and decays of any strength."""

import pytest
import torch
import torch.nn.functional as F

import regard
from regard import Mask
from regard.functional import linear
from regard.functional.delta import decayed_attention, delta_attention
from regard.functional.efficient import efficient_attention
from regard.functional.linear import accumulated
from regard.testing.subject import normal
from tests.kept import kept_bytes

B, H, T, K, V = 2, 3, 70, 6, 5


def drawn(*shapes, dtype=torch.float64):
    return [normal(*shape, seed=n).to(dtype) for n, shape in enumerate(shapes)]


def dense_means(q, k):
    """The weights of causal efficient attention: those of each channel, over the keys so far."""
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    channels = k.mT[:, :, :, None].masked_fill(later, -torch.inf).softmax(-1)  # B H K T S
    return torch.einsum("bhtc,bhcts->bhts", q.softmax(-1), channels)


@pytest.mark.parametrize("impl", ["plain", "auto"])
def test_efficient_attention_is_exact_for_large_keys_in_float32(impl):
    q, k, v = drawn((1, 2, 200, 8), (1, 2, 200, 8), (1, 2, 200, 4))
    k = k * torch.where(torch.arange(200) % 7 == 3, 1000.0, 1.0)[:, None]
    q, k, v = (t.float().requires_grad_() for t in (q, k, v))
    y = efficient_attention(q, k, v, mask=Mask(causal=True), impl=impl)
    exact = dense_means(q.double(), k.double()) @ v.double()
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=5e-4)
    found, expected = (torch.autograd.grad(z.square().sum(), [q, k, v]) for z in (y, exact))
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)


@pytest.mark.parametrize("R", [1, 3], ids=["one decay", "a decay of each row"])
def test_states_beyond_a_group_are_those_of_one_step_after_another(R):
    """With a decay that forgets all before it, which must not blur the others."""
    N = linear.GROUP + 9
    state, gain, log_decay = drawn((2, 3, 3, 2), (2, 3, N, 3, 2), (2, 3, N, R))
    log_decay = -log_decay.abs()
    log_decay[:, :, [5, -4]] = -1e30
    leaves = [z.requires_grad_() for z in (state, gain, log_decay)]
    now, before = state, []
    for d, more in zip(log_decay.unbind(2), gain.unbind(2), strict=True):
        before.append(now)
        now = now * d.exp()[..., None] + more
    expected, found = (torch.stack(before, dim=2), now), accumulated(*leaves)
    losses = (sum(z.cos().sum() for z in y) for y in (expected, found))
    gradients = (torch.autograd.grad(loss, leaves) for loss in losses)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*gradients)


def test_decays_keep_at_most_half_as_much_again_for_the_backward():
    """8 heads of 64: a decay of each head against the same sums without one, one of each channel against linear attention, all in their plain forms.

    Without erasing, one of each channel keeps no more: states of chunks, 4 times as many numbers as a key has, are computed again.
    """
    q, k, v, g = (z.requires_grad_() for z in drawn(*[(1, 8, 1024, 64)] * 4, dtype=torch.float32))
    plain = kept_bytes(lambda: linear.weighted_sums(q, k, v))
    head = g[..., 0]
    assert kept_bytes(lambda: decayed_attention(q, k, v, head)) <= 1.5 * plain
    how = {"mask": Mask(causal=True), "impl": "plain"}
    attention = kept_bytes(lambda: linear.linear_attention(q, k, v, **how))
    assert kept_bytes(lambda: decayed_attention(q, k, v, g)) <= attention
    assert kept_bytes(lambda: delta_attention(q, k, v, head, g)) <= 1.5 * attention


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
    exact = decayed_attention(*(z.double() for z in (q, k, v, g)))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close((y.double(), S.double()), exact, rtol=0, atol=0.02)


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
    y = mixer(x, mask=Mask(causal=True))
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
            before, _ = call(*(z[:, :, :at] for z in given))
            after, end = call(*(z[:, :, at:] for z in given))
            expected = torch.cat([before, after], 2), end
            torch.testing.assert_close(call(*given), expected, rtol=0, atol=close)
