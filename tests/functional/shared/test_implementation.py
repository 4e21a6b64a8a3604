"""Sizes of tiles and chunks."""

import pytest
import torch

import regard
from regard.functional.choice import Form
from regard.functional.shared.implementation import core_cache, cut


def test_a_callers_sizes_are_used_and_the_others_are_chosen():
    z = torch.zeros(1)
    chosen = cut("linear", "auto", z)
    assert chosen.room == min(core_cache(), 1 << 20) * torch.get_num_threads()
    given = cut("linear", Form(tile=3, room=100), z)
    assert given == chosen._replace(tile=3, room=100 * torch.get_num_threads())


def test_values_are_read_where_that_waits_for_nothing():
    assert cut("", "auto", torch.zeros(1)).readable
    meta = cut("", "auto", torch.zeros(1, device="meta"))
    assert meta.tiled and not meta.readable


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "4"])
def test_sizes_are_positive_integers(size):
    with pytest.raises(regard.OptionError, match="tile must be a positive integer"):
        Form(tile=size)
