"""Chunked scans: the laws hold where every sequence is cut, and cuts change nothing."""

from functools import partial

import pytest
import torch

import regard
from regard import Eager, Mask
from regard.functional.linear import chunks
from regard.functional.linear.attention import linear_attention
from regard.functional.linear.efficient import efficient_attention
from regard.functional.linear.favor import favor_attention
from regard.functional.linear.rfa import random_feature_attention
from regard.functional.shared.implementation import cut

W = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
KERNELS = {
    "linear": lambda q, k, v, w, mask, impl: linear_attention(q, k, v, mask=mask, impl=impl),
    "efficient": lambda q, k, v, w, mask, impl: efficient_attention(q, k, v, mask=mask, impl=impl),
    "fourier": random_feature_attention,
    "arc_cosine": partial(random_feature_attention, features="arc_cosine"),
    "gate": lambda q, k, v, w, mask, impl: random_feature_attention(
        q, k, v, w, mask=mask, gate=(4 * q * v).sum(-1), impl=impl
    ),
    "positive": favor_attention,
    "hyperbolic": partial(favor_attention, features="hyperbolic"),
    "relu": partial(favor_attention, features="relu"),
}


@pytest.mark.parametrize("R", [1, 3], ids=["one decay", "a decay of each row"])
def test_states_beyond_a_group_are_those_of_one_step_after_another(R):
    """With a decay that forgets all before it, which must not blur the others."""
    generator = torch.Generator().manual_seed(1)
    N, double = chunks.GROUP + 9, {"generator": generator, "dtype": torch.float64}
    given = torch.randn(2, 3, 3, 2, **double), torch.randn(2, 3, N, 3, 2, **double)
    log_decay = -torch.rand(2, 3, N, R, **double)
    log_decay[:, :, [5, -4]] = -1e30
    leaves = [z.requires_grad_() for z in (*given, log_decay)]
    now, before = given[0], []
    for d, gain in zip(log_decay.unbind(2), given[1].unbind(2), strict=True):
        before.append(now)
        now = now * d.exp()[..., None] + gain
    expected, found = (torch.stack(before, dim=2), now), chunks.decayed(*leaves)
    gradients = (
        torch.autograd.grad(sum(z.cos().sum() for z in y), leaves) for y in (expected, found)
    )
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("size", [1.0, 30.0], ids=["keys of size 1", "keys of size 30"])
@pytest.mark.parametrize("causal", [False, True], ids=["at once", "causal"])
@pytest.mark.parametrize("name", KERNELS)
def test_groups_give_what_the_whole_gives(name, causal, size):
    """Outputs and gradients, with rows of different lengths and decays too large for one piece."""
    if name == "gate" and not causal:
        pytest.skip("a gate is causal")
    generator = torch.Generator().manual_seed(1)
    S = 300 if causal else 333
    q, k, v = (
        torch.randn(3, 2, n, 8, generator=generator, dtype=torch.float64) for n in (300, S, S)
    )
    leaves = [z.requires_grad_() for z in (q, k * size, v, W.clone())]
    valid = torch.arange(S) < torch.tensor([[S], [181], [1]])
    results = []
    mask = Mask(causal=causal, valid=valid, compact=True)
    for impl in (Eager(room=1 << 30), Eager(room=1 << 15)):
        y = KERNELS[name](*leaves, mask=mask, impl=impl)
        results.append((y, *torch.autograd.grad(y.cos().sum(), leaves, allow_unused=True)))
    for whole, ours in zip(*results, strict=True):
        if whole is not None or ours is not None:
            torch.testing.assert_close(ours, whole, rtol=1e-9, atol=1e-9)


def test_groups_are_whole_chunks_or_shorter_than_one():
    for chunk in (3, 64):
        how = cut("linear", Eager(chunk=chunk, room=4096), torch.empty(1))
        for T in (1, chunk - 1, chunk, chunk + 1, 1000, 4096):
            found = list(chunks.ChunkGroups(T, 1, how))
            assert [r.start for r in found] == [0, *(r.stop for r in found[:-1])]
            assert found[-1].stop == T
            assert all((r.stop - r.start) % chunk == 0 or r.stop - r.start < chunk for r in found)


def test_a_piece_is_halved_down_to_a_token():
    groups, found = chunks.ChunkGroups(300, 1, cut("linear", "eager", torch.empty(1))), []
    for rows in groups:
        if rows.start <= 137 < rows.stop and rows.stop - rows.start > 1:
            groups.halve(rows)
        else:
            found.append(rows)
    assert slice(137, 138) in found
    assert [r.start for r in found] == [0, *(r.stop for r in found[:-1])]


def test_a_key_that_is_no_number_ends_too():
    q, k, v = (torch.ones(2, 1, 200, 4) for _ in "qkv")
    k[0, 0, 70:] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30])
    k[1, 0, 90] = 1000.0
    y = efficient_attention(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(y[1], v[1])


def test_training_keeps_outputs_and_borders_alone():
    """What is kept of 16,384 tokens for the backward pass: less than one tensor of their features."""
    torch.manual_seed(0)
    mixer = regard.build("performer", dim=32, num_heads=2, num_features=256)
    x = torch.randn(1, 16384, 32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda z: kept.append((z.untyped_storage().data_ptr(), z.untyped_storage().nbytes())) or z,
        lambda z: z,
    ):
        mixer(x, mask=Mask(causal=True))
    assert sum(size for _, size in set(kept)) < 2 * 16384 * 256 * 4
