"""Which implementation computed is known afterwards."""

import torch

import regard
from regard.core.counting import count
from regard.functional.shared.implementation import recorded


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
