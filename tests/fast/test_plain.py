"""`impl="plain"` asks no replacement, whatever is asked of the mixer."""

import inspect

import pytest
import torch

import regard
from regard import Mask
from regard.functional.rows import recorded

NAMES = [n for n, cls in regard.MIXERS.items() if "impl" in inspect.signature(cls).parameters]
B, T, D = 2, 300, 24


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_replaced_where_the_plain_form_is_asked_for(name):
    mixer = regard.build(name, dim=D, num_heads=3, max_len=T, impl="plain").eval()
    can, x = mixer.capabilities, torch.randn(B, T, D)
    orders = [order for order, able in ((True, can.causal), (False, can.bidirectional)) if able]
    masks = [Mask(causal=causal) for causal in orders]
    if can.global_tokens:
        masks.append(Mask(orders[-1], global_tokens=(torch.arange(T) < 2).expand(B, -1)))
    with torch.no_grad(), recorded() as used:
        for mask in masks:
            mixer(x, mask=mask)
        if can.streaming:
            state = mixer.initial_state(B)
            for piece in x[:, :50].split([40, 1, 1, 1, 7], dim=1):
                _, state = mixer.extend(piece, state)
    assert used == set(), used
