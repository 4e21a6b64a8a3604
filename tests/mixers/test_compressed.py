"""Memory-compressed attention beyond the laws: its first slots, and a state that grows."""

import pytest
import torch

from regard import Mask
from regard.mixers.compressed import Compressed
from regard.testing import LawError, check_mixer


def tokens(length=13, batch=2):
    return torch.randn(batch, length, 24, generator=torch.Generator().manual_seed(0)).double()


def test_what_the_first_queries_see():
    x, mask = tokens(), Mask(causal=True)
    nothing = Compressed(24, num_heads=3, factor=4, first_slot="none").double()(x, mask=mask)
    assert torch.equal(nothing[:, :3], torch.zeros(2, 3, 24)) and nothing[:, 3:].abs().min() > 0
    null = Compressed(24, num_heads=3, factor=4, first_slot="null").double()
    assert torch.equal(null(x, mask=mask)[:, :3], torch.zeros(2, 3, 24))  # its value starts at zero
    first = Compressed(24, num_heads=3, factor=4).double()
    y = first(x, mask=mask)
    torch.testing.assert_close(
        y[:, :4], first.heads.out(first.heads.value(x[:, :1])).expand(2, 4, 24)
    )


def test_the_state_grows_by_one_slot_for_every_few_tokens():
    mixer = Compressed(24, num_heads=3, factor=3).double()
    state = mixer.initial_state(2)
    for token in tokens(13).split(1, dim=1):
        _, state = mixer.extend(token, state)
    assert state.k.shape[2] == 1 + 4 and state.rest_k.shape[2] == 2  # token 0, and 13 // 3
    with torch.no_grad():
        state = mixer.initial_state(2, max_len=30)
        place = state.k.data_ptr()
        for token in tokens(13).split(1, dim=1):
            _, state = mixer.extend(token, state, donate=True)
    assert state.k.data_ptr() == place and state.k.shape[2] == 1 + 10


class Forgets(Compressed):
    """Claims to feel every token at once."""

    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        self.delay = 0


def test_a_delay_that_is_not_declared_is_caught():
    with pytest.raises(LawError, match=r"^sensitivity: "):
        check_mixer(lambda: Forgets(24, num_heads=3), "sensitivity")
