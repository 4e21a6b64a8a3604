"""Memory-compressed attention beyond the laws: its limit, its first slots, and long sequences taken in blocks."""

import pytest
import torch

import regard
from regard import Form, Mask, OptionError
from regard.mixers.compressed import Compressed
from regard.testing import LawError, check_mixer


def tokens(length=13, batch=2):
    return torch.randn(batch, length, 24, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("causal", [False, True])
def test_one_token_a_slot_and_identity_taps_is_softmax_attention(causal):
    mixer = Compressed(24, num_heads=3, factor=1, first_slot="none").double()
    for conv in (mixer.key_conv, mixer.value_conv):
        conv.weight.data = torch.eye(8).double().repeat(3, 1)[..., None]
        conv.bias.data.zero_()
    full = regard.build("softmax", dim=24, num_heads=3).double()
    full.heads.load_state_dict(mixer.heads.state_dict())
    mask = Mask(causal=causal)
    torch.testing.assert_close(mixer(tokens(), mask=mask), full(tokens(), mask=mask))


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


@pytest.mark.parametrize("first_slot", ["token0", "null", "none"])
def test_tiles_of_queries_do_not_show(first_slot):
    mixer = Compressed(24, num_heads=3, first_slot=first_slot).double()
    x, context = tokens(29), tokens(22)
    asks = [
        {"mask": Mask(causal=True)},
        {"mask": Mask(causal=True), "context": context},
        {
            "mask": Mask(causal=True, valid=torch.arange(22) < torch.tensor([[9], [22]])),
            "context": context,
        },
    ]

    def outputs_and_gradients():
        for ask in asks:
            y = mixer(x, **ask)
            yield y, *torch.autograd.grad(y.sin().sum(), list(mixer.heads.parameters()))

    whole = list(outputs_and_gradients())
    mixer.impl = Form(tile=5)
    torch.testing.assert_close(list(outputs_and_gradients()), whole, rtol=0, atol=1e-11)


def test_tiles_of_queries_under_autocast():
    mixer, mask = Compressed(24, num_heads=3, first_slot="null"), Mask(causal=True)
    x = tokens(29).float()
    whole = mixer(x, mask=mask)
    mixer.impl = Form(tile=5)
    with torch.autocast("cpu", torch.bfloat16):
        y = mixer(x, mask=mask)
        y.sum().backward()
    torch.testing.assert_close(y.float(), whole, rtol=0, atol=0.05)


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


def test_an_unknown_first_slot_is_named():
    with pytest.raises(OptionError, match=r"first_slot .* must be one of"):
        Compressed(24, num_heads=3, first_slot="zero")
