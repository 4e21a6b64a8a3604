"""Which implementation computed is known afterwards."""

import torch

import regard
from regard.functional.implementation import recorded


def test_what_computed_is_recorded():
    with recorded() as used:
        regard.build("linear", dim=8, num_heads=2)(torch.zeros(1, 3, 8))
    assert used == set()
    local = regard.build("local", dim=8, num_heads=2, window_size=2, impl="flex")
    with recorded() as used, torch.no_grad():
        local(torch.zeros(1, 3, 8))
    assert used == {"flex"}
    with recorded() as used:
        regard.build("local", dim=8, num_heads=2)(torch.zeros(1, 3, 8))
    assert used == {"eager"}
