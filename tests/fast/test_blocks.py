"""Sizes of tiles."""

import pytest
import torch

import regard
from regard.fast.cpu.blocks import core_cache, cut
from regard.functional.rows import Form


def test_a_callers_sizes_are_used_and_the_others_are_chosen():
    chosen = cut(Form(), tile=32)
    assert chosen.tile == 32
    assert chosen.room == min(core_cache(), 1 << 20) * torch.get_num_threads()
    given = cut(Form(tile=3, room=100), tile=32)
    assert given == chosen._replace(tile=3, room=100 * torch.get_num_threads())


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "4"])
def test_sizes_are_positive_integers(size):
    with pytest.raises(regard.OptionError, match="tile must be a positive integer"):
        Form(tile=size)
