"""Patterns in tiles: the plan, and results that agree with the picture however the tiles fall."""

import random

import pytest
import torch

from regard.core.mask import OPEN, Mask
from regard.fast.cpu import tiles
from regard.fast.cpu.plan import plan_tiles
from regard.fast.ranges import disjoint, ranges
from regard.functional import pattern_attention
from regard.functional.pattern import weights
from regard.functional.patterns import (
    All,
    Block,
    First,
    PerHead,
    Scattered,
    Strided,
    Summary,
    Window,
    picture,
)
from regard.functional.rows import Form
from tests.functional.test_pattern import PATTERNS, TABLE, TINY, B, H, K


def plan_of(pattern, T: int, mask: Mask = OPEN, tile: int = 4) -> list[tiles.TileBatch]:
    """The batches of a forward pass."""
    made = plan_tiles(pattern, mask, H, T, tile, rows=tile // 4)
    return [batch for heads in made for batch in heads.batches]


@pytest.mark.parametrize("room, heads_side_by_side", [(8, False), (320, True), (20000, False)])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_batches_of_any_size_and_layout_equal_the_dense_softmax(pattern, heads_side_by_side, room):
    impl = Form(tile=4, room=room)
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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "pattern, tiles, equal",
    [
        (Window(2, 1), 12, 1),
        (Window(2, 2, 3), 13, 3),
        (Block(4), 4, 1),
        (Strided(4), 13, 3),
        (Scattered(2, TABLE), 7, 1),
        (Block(2, 1) | Scattered(2, TABLE) | First(2), 15, 1),
        (PerHead((Window(2, 1), Strided(4), Window(2, 1))), 25, 4),
        (Summary(4, 2), 6, 0),
        (First(2), 2, 0),
        (All(), 7, 0),
    ],
    ids="window dilated block strided scattered bigbird heads summary first all".split(),
)
def test_13_tokens_are_many_tiles_and_batches_where_tiles_are_small(pattern, tiles, equal, causal):
    batches = plan_of(pattern, 13, Mask(causal=causal))
    assert sum(batch.repeats for batch in batches) >= tiles
    assert sum(batch.repeats > 1 for batch in batches) >= equal


def test_equal_tiles_are_one_batch_even_where_a_mask_touches_others():
    valid = torch.ones(2, 4096, dtype=torch.bool)
    valid[1, 3000:] = False
    padded = Mask(valid=valid, compact=True)
    for pattern, mask, most in (
        (Window(128, 128), Mask(), 32),
        (Window(128, 128), padded, 32),
        (Strided(64), Mask(), 2),
        (Block(64, 1, 1) | First(64), Mask(), 70),
        (Window(8, 8, 4), padded, 200),
    ):
        batches = plan_of(pattern, 4096, mask, tile=128)
        assert len(batches) <= most
        assert {i for b in batches for i in _queries(b)} == set(range(4096))


@pytest.mark.parametrize(
    "cols, shift, count",
    [
        (range(0, 10), 2, 7),  # neighbours of a window
        (range(0, 40, 4), 1, 4),  # residues of a stride
        (range(3, 43, 4), 8, 5),  # a dilated window, one residue
        (range(0, 30, 3), 2, 6),
        (range(5, 9), 100, 3),
    ],
)
def test_gradients_of_keys_are_added_where_no_two_tiles_write(cols, shift, count):
    parts = list(tiles.apart(cols, shift, count))
    assert [key for part in parts for key in cols[part]] == list(cols)
    for part in parts:
        written = [key + n * shift for key in cols[part] for n in range(count)]
        assert len(set(written)) == len(written)


def _queries(batch: tiles.TileBatch):
    for n in range(batch.repeats):
        yield from (row + n * batch.shift for row in batch.tile.rows)


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


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_the_ranges_name_every_key_of_the_picture(pattern):
    T = 31
    pairs = picture(pattern, T)[0]
    for term in [term for one in getattr(pattern, "heads", (pattern,)) for term in one.terms]:
        if isinstance(term, Scattered):
            continue
        wanted = picture(term, T)[0, 0]
        for residue in range(term.lanes):
            rows = range(residue, T, term.lanes)[1:4]
            named = {j for keys in ranges(term, rows, T) for j in keys}
            assert {j for i in rows for j in range(T) if wanted[i, j]} <= named
        assert (wanted <= pairs.any(0)).all()


def test_disjoint_names_every_number_once():
    lot = random.Random(0)
    for _ in range(300):
        ranges = [
            range(lot.randrange(20), lot.randrange(40), lot.choice([1, 1, 2, 3, 5]))
            for _ in range(4)
        ]
        numbers = [n for r in disjoint(ranges) for n in r]
        assert sorted(numbers) == sorted(set().union(*ranges))


def test_a_table_that_changed_has_another_plan():
    q = torch.randn(1, H, 33, K, dtype=torch.float64)
    pattern = Scattered(3, TABLE.clone() % 11) | Block(3)
    for _ in range(2):
        y = pattern_attention(q, q, q, pattern=pattern, impl=TINY)
        torch.testing.assert_close(y, weights(q, q, pattern=pattern) @ q, rtol=0, atol=1e-12)
        pattern.parts[0].table.sub_(1).remainder_(11)
