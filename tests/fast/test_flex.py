"""Patterns through FlexAttention: the same pairs, one kernel for each pattern, and what it refuses."""

import pytest
import torch

import regard
from regard import Mask, UnsupportedError
from regard.fast import flex
from regard.functional import pattern_attention
from regard.functional.patterns import PerHead, Strided, Window, picture
from regard.functional.rows import recorded
from regard.testing.counting import count
from tests.functional.test_pattern import PATTERNS, B, H


def assert_plain(pattern, T, *, causal=False, padded=False):
    q, k, v = (torch.randn(B, H, T, 16) for _ in range(3))
    valid = torch.arange(T) < torch.tensor([[T], [T - 9]])
    padding = {"valid": valid, "compact": True} if padded else {}
    mask, forms = Mask(causal=causal, **padding), ("flex", "plain")
    ys = (pattern_attention(q, k, v, pattern=pattern, mask=mask, impl=impl) for impl in forms)
    torch.testing.assert_close(*ys, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_flex_computes_the_same_pairs(pattern, causal, monkeypatch):
    monkeypatch.setattr(flex, "BLOCK", 16)
    assert_plain(pattern, 33, causal=causal, padded=PATTERNS.index(pattern) % 2)


def test_flex_is_compiled_for_patterns_and_not_for_lengths(monkeypatch):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(flex._attend, fullgraph=True, backend=backend)
    monkeypatch.setattr(flex, "_compile", lambda: compiled)
    monkeypatch.setattr(flex, "_flex", lambda device: flex._compiled)
    monkeypatch.setattr(flex, "BLOCK", 16)
    torch._dynamo.reset()
    for n, pattern in enumerate([*(Window(before, 1) for before in range(2, 12)), Strided(4)]):
        for T in (33, 57, 70, 90) if n == 0 else (57,):
            assert_plain(pattern, T, causal=bool(n % 2), padded=n % 2)
        assert n + 1 <= len(graphs) <= 2 + 2 * n


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", [p for p in PATTERNS if not isinstance(p, PerHead)])
def test_block_masks_name_every_block_with_a_pair(pattern, causal):
    T = 33
    pairs = torch.nn.functional.pad(picture(pattern, T, causal=causal), (0, 3, 0, 3))
    tiles = pairs.unflatten(-1, (9, 4)).unflatten(-3, (9, 4))
    blocks = flex.block_mask(pattern, T, causal=causal, device=torch.device("cpu"), size=4)
    some = tiles.any(-1).any(-2)
    found = blocks.to_dense().bool()
    assert (some <= found).all()
    if "Scattered" not in repr(pattern):
        assert torch.equal(found, some.expand_as(found))


def test_an_implementation_that_cannot_serve_is_refused():
    q = torch.randn(B, H, 8, 16)
    mask = Mask(pairwise=torch.ones(1, 1, 8, 8, dtype=torch.bool))
    with pytest.raises(UnsupportedError, match="does not take pairwise"):
        pattern_attention(q, q, q, pattern=Window(1, 1), mask=mask, impl="flex")
    with pytest.raises(UnsupportedError, match="no backward pass on cpu"):
        pattern_attention(q.requires_grad_(), q, q, pattern=Window(1, 1), impl="flex")


def test_what_computed_is_recorded_and_a_count_of_operations_sees_all_of_them():
    for told in ("softmax auto fused", "local flex flex", "local auto tiles"):
        name, impl, kernel = told.split()
        with recorded() as used, torch.no_grad():
            regard.build(name, dim=32, num_heads=2, impl=impl)(torch.zeros(1, 3, 32))
        assert used == {kernel}
    local = regard.build("local", dim=32, num_heads=2, window_size=2, impl="flex")
    x = torch.zeros(1, 9, 32)
    with torch.no_grad():
        with recorded(plain_instead=True) as used:
            found = count(lambda: local(x))
        local.impl = "plain"
        assert used == {"flex"} and found.flops == count(lambda: local(x)).flops
