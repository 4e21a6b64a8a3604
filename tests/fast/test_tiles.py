"""Patterns in tiles: results that agree with the picture however the tiles fall, and what is kept of them."""

import pytest
import torch

from regard.core.mask import Mask
from regard.fast.cpu.tiles import tiles
from regard.functional import pattern_attention
from regard.functional.pattern import weights
from regard.functional.patterns import Block, Scattered, Strided, Window
from regard.functional.rows import Form
from tests.functional.test_pattern import PATTERNS, TABLE, TINY, B, H, K


@pytest.mark.parametrize("tile, heads_side_by_side", [(4, False), (5, True), (64, False)])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_tiles_of_any_size_and_layout_equal_the_dense_softmax(pattern, heads_side_by_side, tile):
    impl = Form(tile=tile)
    torch.manual_seed(0)
    T = 31
    shape = (1, T, H, K) if heads_side_by_side else (1, H, T, K)
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    q, k, v = (z.transpose(1, 2) for z in leaves) if heads_side_by_side else leaves
    pairwise = torch.rand(1, H, T, T) > 0.4  # a tile of few heads takes their part of its mask
    for mask in (Mask(), Mask(causal=True), Mask(pairwise=pairwise)):
        y = pattern_attention(q, k, v, pattern=pattern, mask=mask, impl=impl)
        dense = weights(q, k, pattern=pattern, mask=mask) @ v
        torch.testing.assert_close(y, dense, rtol=0, atol=1e-12)
        dy = torch.randn_like(y)
        found, expected = (torch.autograd.grad(z, leaves, dy) for z in (y, dense))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("width", [K, K + 3])
def test_tiles_without_the_fused_kernel(width):
    T, pattern = 13, Window(3, 3) | Strided(4)
    q, k = (torch.randn(B, H, T, K, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.randn(B, H, T, width, dtype=torch.float64, requires_grad=True)
    mask = Mask(valid=torch.arange(T) < torch.tensor([[T], [2]]), compact=True)
    y, dense = (
        pattern_attention(q, k, v, pattern=pattern, mask=mask, impl=TINY),
        weights(q, k, pattern=pattern, mask=mask) @ v,
    )
    torch.testing.assert_close(y, dense, rtol=0, atol=1e-12)
    dy = torch.randn_like(y)
    found, expected = (torch.autograd.grad(z, (q, k, v), dy) for z in (y, dense))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_table_that_changed_has_another_plan():
    q = torch.randn(1, H, 33, K, dtype=torch.float64)
    pattern = Scattered(3, TABLE.clone() % 11) | Block(3)
    for _ in range(2):
        y = pattern_attention(q, q, q, pattern=pattern, impl=TINY)
        torch.testing.assert_close(y, weights(q, q, pattern=pattern) @ q, rtol=0, atol=1e-12)
        pattern.parts[0].table.sub_(1).remainder_(11)


def test_tiles_of_one_shape_share_a_mask():
    """So that what is kept of a long sequence is small."""
    for pattern, most in ((Window(128, 128), 8), (Strided(64), 4), (Window(8, 8, 4), 20)):
        masks = {id(tile.bias) for tile in tiles(pattern, True, H, 4096, 64)}
        assert len(masks) <= most


@pytest.mark.parametrize("pattern", [Window(2, 2, 3), Strided(4), Block(4, 1), Window(9, 0)])
def test_evenly_spaced_keys_are_views(pattern):
    found = [at for tile in tiles(pattern, False, H, 31, 4) for at in tile.keys]
    assert found and all(isinstance(at, slice) for at in found)
