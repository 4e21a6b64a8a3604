"""Patterns: the algebra, the picture, and kernels that agree with the picture however the tiles fall."""

import math
import random

import pytest
import torch

import regard
from regard import Eager, Mask, OptionError, ShapeError, UnknownNameError, UnsupportedError
from regard.core.mask import OPEN
from regard.functional import pattern_attention
from regard.functional.shared.implementation import cut
from regard.functional.sparse import attention, flex, tiles
from regard.functional.sparse.attention import weights as pattern_weights
from regard.functional.sparse.patterns import (
    All,
    Block,
    First,
    PerHead,
    Scattered,
    Span,
    Strided,
    Summary,
    Window,
    disjoint,
    draw_blocks,
    mask_mod,
    picture,
)
from regard.functional.sparse.plan import plan_tiles

B, H, K = 2, 3, 4
TABLE = draw_blocks(H, 11, 2, seed=3, causal=False, first_is_global=False)
PATTERNS = [
    Window(2, 1),
    Window(2, 2, 3),
    Block(4),
    Block(3, 1, 1),
    Strided(4),
    Window(3, 3) | Strided(4),
    Block(4) | Summary(4, 2),
    Summary(5, 2, 1) | Summary(3, 1),
    Window(1, 1, 2) | Window(1, 1, 3) | First(2) | Strided(5),
    All(),
    PerHead((Window(1, 1), Strided(3), Window(1, 1))) | First(1),
    Block(3, 1, 1) | Scattered(3, TABLE) | First(3),
    Window(1, 2) | Span(4, 7) | First(1),
    Scattered(4, TABLE) | Span(8, 12),
    Scattered(3, TABLE) | Window(1, 1) | Strided(4),
]


TINY = Eager(tile=4, chunk=3, room=2048)
DEVICE = torch.device("cpu")


def plan_of(pattern, T: int, mask: Mask = OPEN, impl=TINY) -> list[tiles.TileBatch]:
    """The batches of a forward pass."""
    how = cut("pattern", impl, torch.empty(0))
    made = plan_tiles(pattern, mask, H, T, DEVICE, how, rows=how.tile // 4)
    return [batch for heads in made for batch in heads.batches]


def masks(T: int, causal: bool):
    valid = torch.arange(T) < torch.tensor([[T], [max(T - 3, 1)]])
    pairwise = torch.rand(1, H, T, T) > 0.4
    few = torch.rand(B, T) > 0.7
    few = few & (few.cumsum(1) <= 3) & valid
    yield Mask(causal=causal)
    yield Mask(causal=causal, valid=valid, compact=True)
    yield Mask(causal=causal, pairwise=pairwise)
    yield Mask(causal=causal, valid=valid, pairwise=pairwise, global_tokens=few, compact=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_tiles_equal_the_dense_softmax_in_outputs_and_gradients(pattern, causal):
    torch.manual_seed(0)
    for T, max_global in ((1, None), (5, 3), (13, None), (13, 3)):
        q, k, v = (
            torch.randn(B, H, T, K, dtype=torch.float64, requires_grad=True) for _ in range(3)
        )
        outer_k, outer_v = (
            torch.randn(B, H, 2, K, dtype=torch.float64, requires_grad=True) for _ in range(2)
        )
        dy = torch.randn(B, H, T, K, dtype=torch.float64)
        for mask in masks(T, causal):
            for prefix in (None, (outer_k, outer_v)):
                leaves = (q, k, v) if prefix is None else (q, k, v, *prefix)
                y = pattern_attention(
                    q,
                    k,
                    v,
                    pattern=pattern,
                    mask=mask,
                    prefix=prefix,
                    max_global=max_global,
                    impl=TINY,
                )
                weights = pattern_weights(
                    q, k, pattern=pattern, mask=mask, prefix=prefix and prefix[0]
                )
                dense = weights @ (v if prefix is None else torch.cat([outer_v, v], dim=2))
                torch.testing.assert_close(y, dense, rtol=0, atol=1e-12)
                found, expected = (torch.autograd.grad(z, leaves, dy) for z in (y, dense))
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("room, heads_side_by_side", [(8, False), (320, True), (20000, False)])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_batches_of_any_size_and_layout_equal_the_dense_softmax(pattern, heads_side_by_side, room):
    impl = Eager(tile=4, room=room)
    torch.manual_seed(0)
    T = 31
    shape = (1, T, H, K) if heads_side_by_side else (1, H, T, K)
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    q, k, v = (z.transpose(1, 2) for z in leaves) if heads_side_by_side else leaves
    pairwise = torch.rand(1, H, T, T) > 0.4  # a tile of few heads takes their part of its mask
    for mask in (Mask(), Mask(causal=True), Mask(pairwise=pairwise)):
        y = pattern_attention(q, k, v, pattern=pattern, mask=mask, impl=impl)
        dense = pattern_weights(q, k, pattern=pattern, mask=mask) @ v
        torch.testing.assert_close(y, dense, rtol=0, atol=1e-12)
        dy = torch.randn_like(y)
        found, expected = (torch.autograd.grad(z, leaves, dy) for z in (y, dense))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("room", [64, 1 << 27])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_the_tiles_of_a_device(pattern, room, causal):
    q, k, v = leaves = [
        torch.randn(B, H, 13, K, dtype=torch.float64, requires_grad=True) for _ in "qkv"
    ]
    how = cut("pattern", TINY, q)._replace(tiled=False, readable=False, room=room)
    mask = Mask(causal=causal)
    y = attention._by_plan(q, k, v, pattern, mask, None, None, None, how)
    dense = pattern_weights(q, k, pattern=pattern, mask=mask) @ v
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
        batches = plan_of(pattern, 4096, mask, impl="auto")
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
        pattern_weights(q, k, pattern=pattern, mask=mask) @ v,
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
        if term.share is not None:
            continue
        wanted = picture(term, T)[0, 0]
        for residue in range(term.step):
            rows = range(residue, T, term.step)[1:4]
            named = {j for keys in term.keys(rows, T) for j in keys}
            assert {j for i in rows for j in range(T) if wanted[i, j]} <= named
        assert (wanted <= pairs.any(0)).all()


def test_union_is_a_set():
    a, b, c = Window(2, 2), Strided(3), First(1)
    assert torch.equal(picture(a | b, 13), picture(a, 13) | picture(b, 13))
    assert torch.equal(picture(a | b | c, 13), picture(c | b | a, 13))
    assert (a | a).terms == (a,) and a | b == a | b
    heads = PerHead((a, b))
    assert (heads | c) == PerHead((a | c, b | c)) and (c | heads) == PerHead((c | a, c | b))
    assert (heads | PerHead((c, c))) == (heads | c)


def test_identities():
    T = 13
    assert torch.equal(picture(Window(T, T), T), picture(All(), T))
    assert torch.equal(picture(Block(T), T), picture(All(), T))
    assert torch.equal(picture(First(T), T), picture(All(), T))
    assert torch.equal(picture(Strided(1), T), picture(All(), T))
    assert torch.equal(picture(Window(T, T, 4), T), picture(Strided(4), T))
    assert picture(Window(2, 5), T, causal=True).sum(-1).max() == 3  # w + 1 keys, itself among them


def test_mask_mod_is_the_picture():
    T = 13
    i, j = torch.arange(T)[:, None], torch.arange(T)
    for pattern in (Window(2, 1, 2) | First(1), PerHead((Window(1, 1), Strided(3)))):
        for h, pairs in enumerate(picture(pattern, T, causal=True)[0]):
            assert torch.equal(mask_mod(pattern, causal=True)(None, torch.tensor(h), i, j), pairs)


def test_disjoint_names_every_number_once():
    lot = random.Random(0)
    for _ in range(300):
        ranges = [
            range(lot.randrange(20), lot.randrange(40), lot.choice([1, 1, 2, 3, 5]))
            for _ in range(4)
        ]
        numbers = [n for r in disjoint(ranges) for n in r]
        assert sorted(numbers) == sorted(set().union(*ranges))


def test_blocks_come_from_the_seed_and_keep_away_from_the_window():
    drawn = draw_blocks(2, 9, 3, seed=1, causal=False, first_is_global=True)
    assert torch.equal(drawn, draw_blocks(2, 9, 3, seed=1, causal=False, first_is_global=True))
    assert not torch.equal(drawn, draw_blocks(2, 9, 3, seed=2, causal=False, first_is_global=True))
    past = draw_blocks(2, 9, 3, seed=1, causal=True, first_is_global=True)
    for h in range(2):
        for g in range(9):
            row = [b for b in drawn[h, g].tolist() if b >= 0]
            assert len(row) == len(set(row)) and all(b > 0 and abs(b - g) > 1 for b in row)
            assert all(0 < b < g - 1 for b in past[h, g].tolist() if b >= 0)


def test_cost_follows_the_pairs():
    from regard.core.counting import count

    def flops(T, pattern):
        q = torch.empty(1, 2, T, 8, device="meta")
        return count(lambda: pattern_attention(q, q, q, pattern=pattern)).flops

    for pattern in (Window(16, 16), Block(16), Window(4, 4, 4) | First(1)):
        assert math.isclose(flops(2048, pattern) / flops(512, pattern), 4, rel_tol=0.2)


def test_errors_name_the_argument():
    with pytest.raises(OptionError, match=r"before \(-1\)"):
        Window(-1, 2)
    with pytest.raises(OptionError, match=r"width \(3\) of group 1"):
        Summary(5, 3, 1)
    with pytest.raises(OptionError, match="2 and for 3 heads"):
        PerHead((All(), All())) | PerHead((All(),) * 3)
    q = torch.zeros(1, 2, 5, 4)
    with pytest.raises(ShapeError, match="on one axis, got 5 and 4"):
        pattern_attention(q, q[:, :, 1:], q[:, :, 1:], pattern=All())
    with pytest.raises(ShapeError, match="for 1 heads meets queries of 2"):
        pattern_attention(q, q, q, pattern=PerHead((All(),)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_flex_computes_the_same_pairs(pattern, causal, monkeypatch):
    monkeypatch.setattr(flex, "BLOCK", 16)
    T = 33
    q, k, v = (torch.randn(B, H, T, 16) for _ in range(3))
    valid = torch.arange(T) < torch.tensor([[T], [T - 9]])
    mask = (
        Mask(causal=causal, valid=valid, compact=True)
        if PATTERNS.index(pattern) % 2
        else Mask(causal=causal)
    )
    expected = pattern_attention(q, k, v, pattern=pattern, mask=mask, impl="eager")
    found = pattern_attention(q, k, v, pattern=pattern, mask=mask, impl="flex")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


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
            q, k, v = (torch.randn(B, H, T, 16) for _ in range(3))
            valid = torch.arange(T) < torch.tensor([[T], [T - 9]])
            mask = Mask(causal=True, valid=valid, compact=True) if n % 2 else Mask()
            found = pattern_attention(q, k, v, pattern=pattern, mask=mask, impl="flex")
            expected = pattern_attention(q, k, v, pattern=pattern, mask=mask, impl="eager")
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert n + 1 <= len(graphs) <= 2 + 2 * n


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_block_masks_name_every_block_with_a_pair(pattern, causal):
    T = 33
    pairs = torch.nn.functional.pad(picture(pattern, T, causal=causal), (0, 3, 0, 3))
    tiles = pairs.unflatten(-1, (9, 4)).unflatten(-3, (9, 4))
    blocks = flex.block_mask(pattern, T, causal=causal, device=torch.device("cpu"), size=4)
    some = tiles.any(-1).any(-2)
    found = blocks.to_dense().bool()
    assert torch.equal(found, some.expand_as(found))


def test_an_implementation_that_cannot_serve_is_refused():
    q = torch.randn(B, H, 8, 16)
    mask = Mask(pairwise=torch.ones(1, 1, 8, 8, dtype=torch.bool))
    with pytest.raises(UnsupportedError, match="does not take pairwise"):
        pattern_attention(q, q, q, pattern=Window(1, 1), mask=mask, impl="flex")
    with pytest.raises(UnsupportedError, match="no backward pass on cpu"):
        pattern_attention(q.requires_grad_(), q, q, pattern=Window(1, 1), impl="flex")
    with pytest.raises(UnknownNameError, match="Did you mean 'flex'"):
        pattern_attention(q, q, q, pattern=Window(1, 1), impl="flx")


def test_build_offers_the_implementation():
    assert regard.build("local", dim=8, num_heads=2, impl="eager").impl == "eager"
    assert regard.build("softmax", dim=8, num_heads=2, impl="auto").name == "softmax"
    with pytest.raises(UnsupportedError, match="softmax has no implementation 'flex'"):
        regard.build("softmax", dim=8, num_heads=2, impl="flex")


def test_a_random_table_that_changed_gets_a_new_block_mask():
    table = TABLE.clone()
    before = Scattered(3, table)
    assert before == Scattered(3, table) and hash(before) == hash(Scattered(3, table))
    stale = before._identity
    table += 0
    assert Scattered(3, table)._identity != stale
