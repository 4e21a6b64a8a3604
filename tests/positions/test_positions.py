"""Positions that are added to tokens, and those inside attention, beside what the oracles of mixers say of them."""

import math

import pytest
import torch

from regard import OptionError, ShapeError, UnknownNameError
from regard.functional.positions.distance import alibi_slopes, t5_bucket
from regard.functional.positions.rotary import rotate
from regard.positions import POSITIONS, make
from tests.refused import assert_refused

FACTS = {"dim": 10, "num_heads": 2, "max_len": 12}
OPTIONS = {"coordinates": {"grid": (3, 4)}}
ADDED = [cls.name for cls in POSITIONS.values() if cls.kind == "absolute"]


def made(name, **options):
    return make(POSITIONS[name], FACTS, options or OPTIONS.get(name, {})).double()


def test_options_and_widths_that_cannot_be_are_named():
    x = torch.zeros(1, 2, 8)

    def call(name, **options):
        return lambda: make(POSITIONS[name], FACTS, options)

    assert_refused(
        (OptionError, "sum is dim", call("axial", dims=(4, 5))),
        (OptionError, "shape", call("axial", shape=(0, 3))),
        (OptionError, "coordinates needs grid", call("coordinates")),
        (UnknownNameError, "Did you mean 'pairing'", call("sinusoidal", paring="half")),
        (OptionError, "pairing .* must be", call("sinusoidal", pairing="both")),
        (OptionError, r"base \(0.0\) must be greater than 0", call("sinusoidal", base=0.0)),
        (OptionError, r"base \(-1.0\) must be greater than 0", call("rotary", base=-1.0)),
        (OptionError, r"num_buckets \(2\)", call("t5", num_buckets=2)),
        (OptionError, r"max_distance \(8\)", call("t5", max_distance=8)),
        (ShapeError, "K must be even, got 7", lambda: rotate(x[..., 1:], torch.arange(2))),
        (OptionError, "pairing must be", lambda: rotate(x, torch.arange(2), pairing="interleaved")),
    )


@pytest.mark.parametrize("name", ADDED)
def test_position_not_column_decides(name):
    module = made(name)
    x = torch.randn(2, 5, 10, dtype=torch.float64)
    position = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    y = module(x, position)
    shift = y - x
    torch.testing.assert_close(shift[0, 2:], shift[1, :3])
    assert name == "none" or (shift[1, 0] - shift[1, 3]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["learned", "axial", "coordinates"])
def test_beyond_max_len_is_refused(name):
    for places, said in (
        (torch.arange(13), r"length \(13\) exceeds max_len \(12\)"),
        (torch.tensor([12]), "exceeds max_len"),
        (torch.tensor([-1, 0]), "position -1 is before the first token"),
    ):
        with pytest.raises(ShapeError, match=said):
            made(name)(torch.zeros(1, len(places), 10).double(), places[None])


def test_sinusoidal_halves_are_the_same_columns_and_an_odd_width_has_one_less():
    x, place = torch.zeros(1, 40, 10).double(), torch.arange(40)[None]
    pairs, halves = (made("sinusoidal", pairing=how)(x, place) for how in ("adjacent", "half"))
    order = [*range(0, 10, 2), *range(1, 10, 2)]
    torch.testing.assert_close(pairs[..., order], halves, rtol=0, atol=1e-15)
    odd = make(POSITIONS["sinusoidal"], FACTS | {"dim": 7}, {})  # which drops the last column
    table = odd(x[:, :4, :7], place[:, :4])
    assert table.shape == (1, 4, 7) and float(table[0, 1, 0]) == pytest.approx(math.sin(1))


def test_float32_angles_stay_exact_where_half_precision_would_not():
    module = make(POSITIONS["sinusoidal"], FACTS, {})
    far = torch.tensor([[4001]])
    low = module(torch.zeros(1, 1, 10, dtype=torch.bfloat16), far)
    assert low.dtype == torch.bfloat16
    exact = module(torch.zeros(1, 1, 10, dtype=torch.float64), far)
    assert (low.double() - exact).abs().max() < 5e-3


@pytest.mark.parametrize("max_len", [1, 2, 12, 13, 64, 1000])
def test_axial_makes_its_own_shape(max_len):
    module = make(POSITIONS["axial"], FACTS | {"max_len": max_len}, {})
    assert module.max_len == max_len and math.prod(module.shape) >= max_len
    rows = module(torch.zeros(1, max_len, 10), torch.arange(max_len)[None])[0]
    assert rows.detach().unique(dim=0).shape[0] == max_len


def test_coordinates_are_rows_then_columns_and_nothing_without_weights():
    module = made("coordinates", grid=(3, 4), radius=True)
    module.project.weight.data.copy_(torch.eye(3, dtype=torch.float64).repeat(4, 1)[:10])
    shift = module(torch.zeros(1, 12, 10).double(), torch.arange(12)[None])[0]
    for p in range(12):
        y, x = p // 4 - 1, 2 * (p % 4) / 3 - 1
        assert shift[p, :3].tolist() == pytest.approx([y, x, (x * x + y * y) ** 0.5])
    module.project.weight.data.zero_()
    x = torch.randn(1, 12, 10).double()
    assert torch.equal(module(x, torch.arange(12)[None]), x)


def test_rotary_keeps_dtype_and_turns_in_float32():
    x = torch.randn(2, 3, 1, 8, dtype=torch.bfloat16)
    far = torch.tensor([4001])
    y = rotate(x, far)
    assert y.dtype == torch.bfloat16
    assert (y.double() - rotate(x.double(), far)).abs().max() < 0.02
    assert rotate(x[:, 0], far.expand(2, 1)).shape == (2, 1, 8)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (16, 40), (8, 1000), (5, 7)])
def test_t5_buckets_are_those_of_the_published_code(num_buckets, max_distance, bidirectional):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="no transformers")
    distance = torch.arange(-300, 1200).reshape(3, -1)
    options = dict(num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    fast = t5_bucket(distance, **options)
    assert torch.equal(fast, t5.T5Attention._relative_position_bucket(-distance, **options))
    used = num_buckets if not bidirectional else 2 * (num_buckets // 2)
    assert int(fast.max()) == used - 1 and int(fast.min()) == 0


def test_t5_starts_at_zero_and_four_slopes_of_alibi_are_every_other_of_sixteen():
    halves = [2.0 ** -(i / 2) for i in (1, 3, 5, 7)]
    assert alibi_slopes(12) == [2.0**-i for i in range(1, 9)] + halves
    assert not make(POSITIONS["t5"], FACTS, {}).bias(*[torch.arange(5)[None]] * 2).any()
