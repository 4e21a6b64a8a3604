"""What no law covers, since it depends on the number of heads."""

import pytest

from regard import MIXERS, build
from regard.testing import check_mixer

VARIANTS = {"default": {}, **MIXERS["mixture"].variants}


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_head_is_enough(variant):
    check_mixer(
        lambda: build("mixture", dim=8, num_heads=1, max_len=64, **VARIANTS[variant]),
        ["reference", "streaming", "map"],
    )
