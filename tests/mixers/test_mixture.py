"""What no law covers, since it depends on the number of heads."""

import pytest
import torch

from regard import MIXERS, Mask, build
from regard.testing import check_mixer

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
    state, outputs = mixer.initial_state(1), []
    for token in x.split(1, dim=1):
        y, state = mixer.extend(token, state)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, dim=1), mixer(x, mask=Mask(causal=True)))
