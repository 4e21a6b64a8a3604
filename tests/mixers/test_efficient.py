import pytest
import torch
from torch.utils._pytree import tree_leaves

from regard import Mask, OptionError, build

CAUSAL = Mask(causal=True)


def make(**options):
    return build("efficient", dim=24, num_heads=3, **options)


def test_the_last_causal_row_is_the_bidirectional_one():
    mixer = make().double()
    x = torch.randn(2, 150, 24, dtype=torch.float64)
    torch.testing.assert_close(mixer(x, mask=CAUSAL)[:, -1], mixer(x)[:, -1])


def test_final_states_do_not_depend_on_the_chunks():
    mixer = make().double()
    x = torch.randn(2, 300, 24, dtype=torch.float64)
    _, once = mixer.extend(x, mixer.initial_state(2))
    state = mixer.initial_state(2)
    for piece in x.split([1, 130, 1, 168], dim=1):
        _, state = mixer.extend(piece, state)
    for a, b in zip(tree_leaves(once), tree_leaves(state), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_bfloat16_stream_follows_the_forward():
    mixer = make().bfloat16()
    x = torch.randn(2, 60, 24).bfloat16()
    state, outputs = mixer.initial_state(2), []
    for token in x.split(1, dim=1):
        y, state = mixer.extend(token, state)
        outputs.append(y)
    y = mixer(x, mask=CAUSAL)
    assert (torch.cat(outputs, dim=1) - y).float().norm() < 0.03 * y.float().norm()


def test_scaling_is_dot_attention_over_the_number_of_keys():
    mixer = make(normaliser="scaling").double()
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    valid = torch.arange(9) < torch.tensor([[9], [5]])
    q, k, v = mixer.heads.split(x)
    weights = q @ k.transpose(-1, -2) * valid[:, None, None] / valid.sum(1)[:, None, None, None]
    expected = mixer.heads.merge(weights @ v) * valid[..., None]
    torch.testing.assert_close(mixer(x, mask=Mask(valid=valid)), expected)


def test_options_that_do_not_fit_are_named():
    with pytest.raises(OptionError, match=r"normaliser .* must be"):
        make(normaliser="none")
    with pytest.raises(ValueError, match="number of all keys"):
        make(normaliser="scaling")(torch.zeros(1, 4, 24), mask=CAUSAL)
