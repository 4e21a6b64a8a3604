"""Kernel attention across the borders of chunks: parallel = recurrent in outputs, gradients and final state."""

import pytest
import torch

from regard import Mask
from regard.functional import linear
from regard.functional.efficient import causal_means, efficient_attention
from regard.functional.linear import accumulated, causal_sums, weighted_sums


def made(*shapes, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def run_in(step, tensors, sizes, count):
    """Outputs joined over pieces of these sizes, and the last state; `count` outputs come before the state."""
    state, outputs, start = (), [], 0
    for size in sizes:
        piece = [None if t is None else t[:, :, start : start + size] for t in tensors]
        found = step(*piece, *state)
        outputs.append(found[:count])
        state, start = found[count:], start + size
    return [torch.cat(o, dim=2) for o in zip(*outputs, strict=True)] + list(state)


@pytest.mark.parametrize("decayed", [False, True])
@pytest.mark.parametrize("T", [128, 300, 513])
def test_sums_in_chunks_are_the_recurrence(T, decayed):
    q, k, v, g = made((2, 3, T, 5), (2, 3, T, 5), (2, 3, T, 4), (2, 3, T))
    tensors = [q.abs(), k.abs(), v, -g.abs() if decayed else None]
    leaves = [t.requires_grad_() for t in tensors if t is not None]

    def step(q, k, v, g, S=None, z=None):
        return causal_sums(q, k, v, g, S, z)

    results = []
    for sizes in ([T], [1] * T, [3, T - 103, 100]):
        found = run_in(step, tensors, sizes, 2)
        total = sum(
            (f * m).sum() for f, m in zip(found, made(*[f.shape for f in found]), strict=True)
        )
        results.append([*found, *torch.autograd.grad(total, leaves)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    sums, total, *_ = weighted_sums(*tensors)
    a = (tensors[0] @ tensors[1].mT).tril()
    if decayed:
        G = tensors[3].cumsum(2)
        a = a * (G[..., None] - G[:, :, None]).clamp(max=0).exp()
    torch.testing.assert_close(
        (sums, total), (a @ v, a.sum(-1, keepdim=True)), rtol=1e-9, atol=1e-9
    )


def dense_means(q, k):
    """The weights of causal efficient attention: those of each channel, over the keys so far."""
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    channels = k.mT[:, :, :, None].masked_fill(later, -torch.inf).softmax(-1)  # B H K T S
    return torch.einsum("bhtc,bhcts->bhts", q.softmax(-1), channels)


@pytest.mark.parametrize("T", [64, 150, 257])
def test_means_in_chunks_are_the_recurrence(T):
    q, k, v = made((2, 3, T, 5), (2, 3, T, 5), (2, 3, T, 4))
    leaves = [t.requires_grad_() for t in (q, k, v)]

    results = []
    for sizes in ([T], [1] * T, [3, T - 53, 50]):
        y, S, z, m = run_in(causal_means, [q.softmax(-1), k, v], sizes, 1)
        found = [y, S / z[..., None], z.log() + m]
        total = sum(
            (f * w).sum() for f, w in zip(found, made(*[f.shape for f in found]), strict=True)
        )
        results.append([*found, *torch.autograd.grad(total, leaves)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(results[0][0], dense_means(q, k) @ v, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("impl", ["plain", "auto"])
def test_efficient_attention_is_exact_for_large_keys_in_float32(impl):
    q, k, v = made((1, 2, 200, 8), (1, 2, 200, 8), (1, 2, 200, 4))
    k = k * torch.where(torch.arange(200) % 7 == 3, 1000.0, 1.0)[:, None]
    q, k, v = (t.float().requires_grad_() for t in (q, k, v))
    y = efficient_attention(q, k, v, mask=Mask(causal=True), impl=impl)
    exact = dense_means(q.double(), k.double()) @ v.double()
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=5e-4)
    found = torch.autograd.grad(y.square().sum(), [q, k, v])
    expected = torch.autograd.grad(exact.square().sum(), [q, k, v])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=5e-3)


@pytest.mark.parametrize("R", [1, 3], ids=["one decay", "a decay of each row"])
def test_states_beyond_a_group_are_those_of_one_step_after_another(R):
    """With a decay that forgets all before it, which must not blur the others."""
    N = linear.GROUP + 9
    state, gain, log_decay = made((2, 3, 3, 2), (2, 3, N, 3, 2), (2, 3, N, R), seed=1)
    log_decay = -log_decay.abs()
    log_decay[:, :, [5, -4]] = -1e30
    leaves = [z.requires_grad_() for z in (state, gain, log_decay)]
    now, before = state, []
    for d, more in zip(log_decay.unbind(2), gain.unbind(2), strict=True):
        before.append(now)
        now = now * d.exp()[..., None] + more
    expected, found = (torch.stack(before, dim=2), now), accumulated(*leaves)
    gradients = (
        torch.autograd.grad(sum(z.cos().sum() for z in y), leaves) for y in (expected, found)
    )
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*gradients)
