"""What no law covers, since it depends on the number of heads."""

import pytest
import torch

from regard import MIXERS, build
from regard.testing import check_mixer
from regard.testing.laws.streaming import require_streamed

VARIANTS = {"default": {}, **MIXERS["mixture"].variants}


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_head_is_enough(variant):
    check_mixer(
        lambda: build("mixture", dim=8, num_heads=1, max_len=64, **VARIANTS[variant]),
        ["reference", "streaming", "map"],
    )


def test_a_stream_without_bound_goes_past_max_len():
    mixer = build("mixture", dim=8, num_heads=2, max_len=5, members=("softmax",)).double()
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    require_streamed(mixer, x, [1] * 9, "past max_len")
