"""Patterns in tiles: results that agree with the picture however the tiles fall, and what is kept of them."""

import pytest
import torch

from regard.fast.cpu.tiles import tiles
from regard.functional import pattern_attention
from regard.functional.pattern import weights
from regard.functional.patterns import Block, Scattered, Strided, Window
from tests.functional.test_pattern import TABLE, TINY, H, K


def test_a_table_that_changed_has_another_plan():
    q = torch.randn(1, H, 33, K, dtype=torch.float64)
    pattern = Scattered(3, TABLE.clone() % 11) | Block(3)
    for _ in range(2):
        y = pattern_attention(q, q, q, pattern=pattern, impl=TINY)
        torch.testing.assert_close(y, weights(q, q, pattern=pattern) @ q, rtol=0, atol=1e-12)
        pattern.parts[0].table.sub_(1).remainder_(11)


def test_tiles_of_one_shape_share_a_mask():
    for pattern, most in ((Window(128, 128), 8), (Strided(64), 4), (Window(8, 8, 4), 20)):
        masks = {id(tile.bias) for tile in tiles(pattern, True, H, 4096, 64)}
        assert len(masks) <= most


@pytest.mark.parametrize("pattern", [Window(2, 2, 3), Strided(4), Block(4, 1), Window(9, 0)])
def test_evenly_spaced_keys_are_views(pattern):
    found = [at for tile in tiles(pattern, False, H, 31, 4) for at in tile.keys]
    assert found and all(isinstance(at, slice) for at in found)
