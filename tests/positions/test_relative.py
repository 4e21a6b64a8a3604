"""Positions inside attention, beside what the oracles of mixers say of them."""

import pytest
import torch

import regard
from regard.functional.positions.distance import alibi_slopes, t5_bucket
from regard.functional.positions.rotary import rotate
from regard.positions import POSITIONS, make

FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}


def test_rotary_keeps_dtype_turns_in_float32_and_refuses_odd_widths_and_unknown_pairings():
    x = torch.randn(2, 3, 1, 8, dtype=torch.bfloat16)
    far = torch.tensor([4001])
    y = rotate(x, far)
    assert y.dtype == torch.bfloat16
    assert (y.double() - rotate(x.double(), far)).abs().max() < 0.02
    assert rotate(x[:, 0], far.expand(2, 1)).shape == (2, 1, 8)
    with pytest.raises(regard.ShapeError, match="K must be even, got 7"):
        rotate(torch.zeros(1, 2, 7), torch.arange(2))
    with pytest.raises(regard.OptionError, match="pairing must be"):
        rotate(torch.zeros(1, 2, 8), torch.arange(2), pairing="interleaved")


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
