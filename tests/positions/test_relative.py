import math

import pytest
import torch

import regard
from regard.functional.positions.distance import alibi_slopes, t5_bucket
from regard.functional.positions.rotary import rotate
from regard.positions import POSITIONS, make

FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}
PAIRINGS = ["half", "adjacent"]


def test_kinds():
    kinds = {cls.name: cls.kind for cls in POSITIONS.values() if cls.kind != "absolute"}
    assert kinds == {
        "rotary": "rotation",
        "alibi": "bias",
        "t5": "bias",
        "transformer_xl": "scores",
    }


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rotary_is_the_loop(pairing):
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    position = torch.tensor([[0, 1, 2, 3, 4], [7, 9, 0, 1, 30]])
    y = rotate(x, position, pairing=pairing)
    for b in range(2):
        for t in range(5):
            for i in range(3):
                a, c = (i, i + 3) if pairing == "half" else (2 * i, 2 * i + 1)
                angle = float(position[b, t]) * 10000 ** (-2 * i / 6)
                turned = torch.complex(x[b, :, t, a], x[b, :, t, c]) * complex(
                    math.cos(angle), math.sin(angle)
                )
                torch.testing.assert_close(y[b, :, t, a], turned.real)
                torch.testing.assert_close(y[b, :, t, c], turned.imag)


def test_rotary_keeps_dtype_and_turns_in_float32():
    x = torch.randn(2, 3, 1, 8, dtype=torch.bfloat16)
    far = torch.tensor([4001])
    y = rotate(x, far)
    assert y.dtype == torch.bfloat16
    assert (y.double() - rotate(x.double(), far)).abs().max() < 0.02
    assert rotate(x[:, 0], far.expand(2, 1)).shape == (2, 1, 8)


def test_rotary_refuses_odd_widths_and_unknown_pairings():
    with pytest.raises(regard.ShapeError, match="K must be even, got 7"):
        rotate(torch.zeros(1, 2, 7), torch.arange(2))
    with pytest.raises(regard.OptionError, match="pairing must be"):
        rotate(torch.zeros(1, 2, 8), torch.arange(2), pairing="interleaved")


def test_alibi_slopes():
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(1) == [2.0**-8]
    assert alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]
    assert alibi_slopes(12) == [2.0**-i for i in range(1, 9)] + [
        2.0 ** -(i / 2) for i in (1, 3, 5, 7)
    ]


def test_alibi_bias_is_minus_slope_times_distance_in_both_directions():
    alibi = make(POSITIONS["alibi"], FACTS, {})
    query, key = torch.tensor([[4, 5]]), torch.tensor([[0, 3, 5, 9]])
    bias = alibi.bias(query, key, torch.float64)
    assert bias.shape == (1, 3, 2, 4)
    for h, slope in enumerate(alibi_slopes(3)):
        for t in range(2):
            for s in range(4):
                assert float(bias[0, h, t, s]) == -slope * abs(int(query[0, t]) - int(key[0, s]))


def slow_bucket(distance, num_buckets, max_distance, bidirectional):
    """The published code's words for one pair; `relative` is key - query."""
    relative, bucket = -distance, 0
    if bidirectional:
        num_buckets //= 2
        bucket += num_buckets if relative > 0 else 0
        n = abs(relative)
    else:
        n = -min(relative, 0)
    exact = num_buckets // 2
    if n < exact:
        return bucket + n
    steps = math.log(n / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    return bucket + min(exact + math.floor(steps + 1e-9), num_buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (16, 40), (8, 1000), (5, 7)])
def test_t5_buckets_are_the_loop(num_buckets, max_distance, bidirectional):
    distance = torch.arange(-300, 1200).reshape(3, -1)
    options = dict(num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    fast = t5_bucket(distance, **options)
    assert fast.flatten().tolist() == [
        slow_bucket(d, **options) for d in distance.flatten().tolist()
    ]
    used = num_buckets if not bidirectional else 2 * (num_buckets // 2)
    assert int(fast.max()) == used - 1 and int(fast.min()) == 0


def test_t5_bias_looks_its_table_up_and_starts_at_zero():
    t5 = make(POSITIONS["t5"], FACTS, {"num_buckets": 8, "max_distance": 20})
    query, key = torch.arange(5)[None], torch.arange(7)[None]
    assert not t5.bias(query, key).any()
    t5.table.data.normal_()
    bias = t5.bias(query, key)
    for t in range(5):
        for s in range(7):
            bucket = slow_bucket(t - s, 8, 20, True)
            assert torch.equal(bias[0, :, t, s], t5.table[bucket])


def test_t5_refuses_buckets_that_cannot_be():
    with pytest.raises(regard.OptionError, match=r"num_buckets \(2\)"):
        make(POSITIONS["t5"], FACTS, {"num_buckets": 2})
    with pytest.raises(regard.OptionError, match=r"max_distance \(8\)"):
        make(POSITIONS["t5"], FACTS, {"max_distance": 8})


@pytest.mark.parametrize("name", ["rotary", "alibi", "t5", "transformer_xl"])
def test_compiles_whole(name):
    module = make(POSITIONS[name], FACTS, {})
    x, place = torch.randn(2, 3, 5, 8), torch.arange(5)[None]
    call = {
        "rotary": lambda: module.rotate(x, place),
        "alibi": lambda: module.bias(place, place),
        "t5": lambda: module.bias(place, place),
        "transformer_xl": lambda: module.scores(x, x, place, place),
    }[name]
    torch.testing.assert_close(torch.compile(call, fullgraph=True, backend="eager")(), call())
