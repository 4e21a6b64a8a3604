"""Which implementation computed is known afterwards."""

import pytest
import torch

import regard
from regard.core.counting import count
from regard.functional.shared.implementation import Eager, core_cache, cut, recorded


def test_what_computed_is_recorded():
    with recorded() as used:
        regard.build("softmax", dim=8, num_heads=2)(torch.zeros(1, 3, 8))
    assert used == set()
    local = regard.build("local", dim=32, num_heads=2, window_size=2, impl="flex")
    with recorded() as used, torch.no_grad():
        local(torch.zeros(1, 3, 32))
    assert used == {"flex"}
    with recorded() as used:
        regard.build("local", dim=8, num_heads=2)(torch.zeros(1, 3, 8))
    assert used == {"eager"}


def test_a_count_of_operations_sees_all_of_them():
    local = regard.build("local", dim=32, num_heads=2, window_size=2, impl="flex")
    x = torch.zeros(1, 9, 32)
    with torch.no_grad():
        with recorded(eager_instead=True) as used:
            found = count(lambda: local(x))
        local.impl = "eager"
        assert used == {"flex"} and found.flops == count(lambda: local(x)).flops


def test_a_callers_sizes_are_used_and_the_others_are_chosen():
    z = torch.zeros(1)
    chosen = cut("linear", "auto", z)
    assert chosen.room == min(core_cache(), 1 << 20) * torch.get_num_threads()
    given = cut("linear", Eager(tile=3, room=100), z)
    assert given == chosen._replace(tile=3, room=100 * torch.get_num_threads())


def test_values_are_read_where_that_waits_for_nothing():
    assert cut("", "auto", torch.zeros(1)).readable
    meta = cut("", "auto", torch.zeros(1, device="meta"))
    assert meta.tiled and not meta.readable


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "4"])
def test_sizes_are_positive_integers(size):
    with pytest.raises(regard.OptionError, match="tile must be a positive integer"):
        Eager(tile=size)
