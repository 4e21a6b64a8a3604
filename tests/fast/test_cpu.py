"""Forms for a CPU in the place of the plain ones: sums in pieces of time, patterns in tiles, sorted rows in parts; none where "plain" is asked for."""

import inspect
from functools import partial

import pytest
import torch

import regard
import regard.fast.scan  # names the operator
from regard import Mask
from regard.fast.cpu.efficient import piece_sizes
from regard.fast.cpu.tiles import tiles
from regard.functional import efficient_attention, favor_attention, lsh_attention
from regard.functional.delta import scanned
from regard.functional.pattern import weights
from regard.functional.patterns import Block, Scattered, Strided, Window
from regard.functional.rows import Form, recorded
from regard.testing import check_mixer
from regard.testing.counting import count
from regard.testing.laws.streaming import feed
from tests.functional.test_pattern import TABLE, TINY, H, K
from tests.kept import kept_bytes
from tests.laws.catalogue import factory
from tests.mixers.test_adapters import answers

NAMES = [n for n, cls in regard.MIXERS.items() if "impl" in inspect.signature(cls).parameters]
T, D = 300, 24


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_replaced_where_the_plain_form_is_asked_for(name):
    mixer = regard.build(name, dim=D, num_heads=3, max_len=T, impl="plain").eval()
    with torch.no_grad(), recorded() as used:
        answers(mixer, T)
        if mixer.capabilities.streaming:
            feed(mixer, torch.randn(2, 50, D), mixer.initial_state(2), [40, 1, 1, 1, 7])
    assert used == set(), used


W = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
KERNELS = {
    "linear": lambda q, k, v, w, **how: regard.functional.linear_attention(q, k, v, **how),
    "efficient": lambda q, k, v, w, **how: efficient_attention(q, k, v, **how),
    "positive": favor_attention,
    "hyperbolic": partial(favor_attention, features="hyperbolic"),
}
CASES = [(name, True) for name in KERNELS] + [("positive", False), ("hyperbolic", False)]


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_pieces_give_what_the_plain_form_gives(name, causal):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(3, 2, 1103, 8, generator=generator, dtype=torch.float64) for _ in "qkv")
    leaves = [z.requires_grad_() for z in (q, 30 * k, v, W.clone())]
    valid = torch.arange(1103) < torch.tensor([[1103], [581], [1]])
    valid[2] = ~valid[2]  # the first is absent
    mask, results = Mask(causal=causal, valid=valid, compact=True), []
    for impl in ("plain", "pieces", Form("pieces", tile=100, chunk=7, room=1 << 16)):
        with recorded() as used:
            y = KERNELS[name](*leaves, mask=mask, impl=impl)
        assert used == (set() if impl == "plain" else {"pieces"})
        results.append((y, *torch.autograd.grad(y.cos().sum(), leaves, allow_unused=True)))
    torch.testing.assert_close(results[1:], 2 * results[:1], rtol=1e-9, atol=1e-9)
    # Two losses share what is kept.
    q, k, v = (z[:1, :, :90].detach().requires_grad_() for z in (q, k, v))
    y = KERNELS[name](q, k, v, W, mask=Mask(causal=causal), impl=Form("pieces", tile=40))
    one = torch.autograd.grad(y.sum(), (q, k, v), retain_graph=True)
    assert all(map(torch.equal, one, torch.autograd.grad(y.sum(), (q, k, v))))
    # What counts as no key is a number of its own in float16.
    halves = [z.detach().half() for z in (q, k, v, W)]
    mask = Mask(causal=causal, valid=torch.arange(90) >= torch.tensor([[40]]))
    pieces, plain = (KERNELS[name](*halves, mask=mask, impl=impl) for impl in ("pieces", "plain"))
    torch.testing.assert_close(pieces, plain, rtol=0.02, atol=0.02)


def test_a_piece_is_halved_down_to_a_token_where_keys_grow_and_a_key_that_is_no_number_ends_too():
    k = torch.zeros(1, 1, 300, 2, dtype=torch.float64)
    k[0, 0, 137:, 1], k[0, 0, 138:, 1] = 100.0, 200.0
    sizes = piece_sizes(k, k[:, :, 0], 128)
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    assert {137, 138} <= set(starts) and starts[-1] == 300 and min(sizes) >= 1
    assert piece_sizes(k[:, :, :137], k[:, :, 0], 128) == [128, 9]
    q, k, v = (torch.ones(2, 1, 200, 4) for _ in "qkv")
    k[0, 0, 70:] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30])
    k[1, 0, 90] = 1000.0
    y = efficient_attention(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(y[1], v[1])


def test_the_scan_of_a_compiled_program_is_the_loop():
    B, H, N, C, K, V = 2, 1, 3, 4, 3, 2
    kinds = ((C, K), (C, C), (C, V), (C, K), (K, C), (K, 1))
    shapes = [(B, H, K, V), *((B, H, N, *kind) for kind in kinds)]
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    results = []
    for form in (scanned, torch.ops.regard.delta_scan):
        made = form(*leaves)[:2]
        loss = sum(part.cos().sum() for part in made)
        results.append((*made, *torch.autograd.grad(loss, leaves)))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


def test_small_features_are_left_to_the_plain_form():
    q = torch.zeros(1, 2, 50, 8)
    with recorded() as used:
        favor_attention(q, q, q, W.float(), mask=Mask(causal=True))
    assert used == {"plain"}


@pytest.mark.parametrize("causal", [True, False])
def test_training_keeps_outputs_and_borders_alone(causal):
    torch.manual_seed(0)
    mixer = regard.build("performer", dim=32, num_heads=2, num_features=512, impl="pieces")
    x = torch.randn(1, 16384, 32)
    assert kept_bytes(lambda: mixer(x, mask=Mask(causal=causal))) < 2 * 16384 * 512 * 4


def test_a_table_that_changed_has_another_plan():
    q = torch.randn(1, H, 33, K, dtype=torch.float64)
    pattern = Scattered(3, TABLE.clone() % 11) | Block(3)
    for _ in range(2):
        y = regard.functional.pattern_attention(q, q, q, pattern=pattern, impl=TINY)
        torch.testing.assert_close(y, weights(q, q, pattern=pattern) @ q, rtol=0, atol=1e-12)
        pattern.parts[0].table.sub_(1).remainder_(11)


def test_tiles_of_one_shape_share_a_mask_and_evenly_spaced_keys_are_views():
    for pattern, most in ((Window(128, 128), 8), (Strided(64), 4), (Window(8, 8, 4), 20)):
        masks = {id(tile.bias) for tile in tiles(pattern, True, H, 4096, 64)}
        assert len(masks) <= most
    for pattern in (Window(2, 2, 3), Strided(4), Block(4, 1), Window(9, 0)):
        found = [at for tile in tiles(pattern, False, H, 31, 4) for at in tile.keys]
        assert found and all(isinstance(at, slice) for at in found), pattern


MIXERS = [
    ("reformer", {"num_buckets": 2, "chunk_size": 2, "chunks_before": 2, "chunks_after": 1}),
    ("reformer", {"chunk_size": 3, "same_bucket_only": False, "num_hashes": 2}),
    ("routing", {"num_clusters": 3, "window_size": 4}),
    ("routing", {"num_clusters": 3, "window_size": 4, "scale": 300.0}),
]


@pytest.mark.parametrize("room", [1, 1 << 8, 1 << 13])
@pytest.mark.parametrize(("name", "options"), MIXERS)
def test_however_much_is_held_at_once_it_is_the_oracle(name, options, room):
    """A scale of 300 has scores whose exponentials are no numbers."""
    check_mixer(factory(name, {**options, "impl": Form(room=room)}), "reference", blocks="own")


@pytest.mark.parametrize("causal", [True, False])
def test_buckets_of_any_type_of_integers_are_the_same_buckets(causal):
    """Their largest number is not the largest of its type, and places are counted in more than one."""
    q = torch.randn(1, 1, 12, 4, dtype=torch.float64)
    buckets = torch.arange(120, 128).repeat(2)[None, None, None, :12]
    valid = torch.arange(12) != torch.tensor([[4]])
    found = [
        lsh_attention(q, q, q, buckets=z, chunk_size=3, mask=Mask(causal, valid), impl=impl)
        for z in (buckets, buckets.to(torch.int8), buckets.int())
        for impl in ("auto", "plain")
    ]
    assert all(torch.allclose(found[0], other) for other in found)


def test_no_pairs_are_stored_for_the_backward_pass():
    q = torch.zeros(1, 2, 4096, 16, requires_grad=True)
    buckets = torch.zeros(1, 2, 2, 4096, dtype=torch.long)
    how = {"buckets": buckets, "chunk_size": 64, "chunks_after": 0, "mask": Mask(causal=True)}
    pairs = 2 * 2 * 4096 * 128 * 4  # float32 scores of all rounds
    assert count(lambda: lsh_attention(q, q, q, **how).sum().backward()).peak_bytes < 2 * pairs
