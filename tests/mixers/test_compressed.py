"""Memory-compressed attention beyond the laws: its first slots, and a state that grows."""

import torch

from regard.mixers.compressed import Compressed
from regard.testing.subject import normal


def test_the_state_grows_by_one_slot_for_every_few_tokens():
    mixer = Compressed(24, num_heads=3, factor=3).double()
    state = mixer.initial_state(2)
    for token in normal(2, 13, 24).split(1, dim=1):
        _, state = mixer.extend(token, state)
    assert state.k.shape[2] == 1 + 4 and state.rest_k.shape[2] == 2  # token 0, and 13 // 3
    with torch.no_grad():
        state = mixer.initial_state(2, max_len=30)
        place = state.k.data_ptr()
        for token in normal(2, 13, 24).split(1, dim=1):
            _, state = mixer.extend(token, state, donate=True)
    assert state.k.data_ptr() == place and state.k.shape[2] == 1 + 10
