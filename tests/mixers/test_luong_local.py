"""Luong's local attention beyond the laws: where windows lie, what the Gaussian does, and long sequences in blocks."""

import math

import pytest
import torch

import regard
from regard import Form, Mask, OptionError


def tokens(length=13, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, 24, generator=generator).double()


def make(**options):
    torch.manual_seed(0)
    return regard.build("luong_local", dim=24, num_heads=3, **options).double()


def test_monotonic_windows_follow_the_query_and_end_at_the_last_valid_key():
    mixer = make(window_size=2)
    used = mixer.attention_map(tokens(8), context=tokens(6, 1)) != 0
    for t in range(8):
        middle = min(t, 5)
        keys = [j for j in range(6) if abs(j - middle) <= 2]
        assert used[0, 0, t].nonzero()[:, 0].tolist() == keys
    valid = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
    used = mixer.attention_map(tokens(8), context=tokens(6, 1), mask=Mask(valid=valid)) != 0
    assert used[0, 0, 7].nonzero()[:, 0].tolist() == [1, 2, 3]


def test_causal_windows_lie_behind_the_query():
    used = make(window_size=2).attention_map(tokens(8), mask=Mask(causal=True))[0, 0] != 0
    assert used[5].nonzero()[:, 0].tolist() == [3, 4, 5]


@pytest.mark.parametrize("length", [1, 6, 13])
def test_a_window_as_wide_as_the_source_is_global_attention(length):
    mixer = make(window_size=max(length - 1, 1))
    full = regard.build("scored", dim=24, num_heads=3, score="general").double()
    full.load_state_dict(mixer.state_dict())
    context = tokens(length, 1)
    torch.testing.assert_close(mixer(tokens(), context=context), full(tokens(), context=context))


def test_predicted_weights_are_softmax_times_gaussian_of_the_number_of_valid_keys():
    mixer = make(window_size=3, alignment="predictive")
    context, valid = tokens(11, 1), torch.arange(11) < torch.tensor([[7], [11]])
    weights = mixer.attention_map(tokens(), context=context, mask=Mask(valid=valid))
    q, k = mixer.heads.queries(tokens()), mixer.heads.keys(context)
    for b, h, t in [(0, 0, 0), (0, 2, 12), (1, 1, 5)]:
        M = (7, 11)[b]
        p = M * torch.sigmoid(mixer.v_p[h] @ torch.tanh(mixer.W_p[h] @ q[b, h, t]))
        keys = [j for j in range(M) if abs(j - math.floor(p.item())) <= 3]
        align = torch.stack(
            [q[b, h, t] @ mixer.score.weight[h] @ k[b, h, j] for j in keys]
        ).softmax(0)
        gauss = torch.stack([(-((j - p) ** 2) / (2 * 1.5**2)).exp() for j in keys])
        expected = torch.zeros(11).double()
        expected[keys] = (align * gauss).detach()
        torch.testing.assert_close(weights[b, h, t], expected)
    assert (weights.sum(-1) < 1).all() and (weights[0, :, :, 7:] == 0).all()


def test_renormalised_weights_have_sum_one():
    mixer = make(window_size=3, alignment="predictive", renormalise=True)
    weights = mixer.attention_map(tokens())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 13).double())


def test_the_place_of_a_predicted_window_is_learned_through_the_gaussian():
    mixer = make(window_size=3, alignment="predictive")
    mixer(tokens()).sum().backward()
    assert mixer.W_p.grad.abs().sum() > 0 and mixer.v_p.grad.abs().sum() > 0


def test_a_prediction_at_its_end_looks_at_the_last_key():
    mixer = make(window_size=1, alignment="predictive")
    mixer.v_p.data.fill_(1e4)
    mixer.W_p.data.fill_(1e4)
    x = tokens()
    assert mixer(x).isfinite().all() and (mixer.attention_map(x).sum(-1) > 0).all()


@pytest.mark.parametrize("options", [{}, {"alignment": "predictive"}, {"score": "additive"}])
def test_tiles_of_queries_do_not_show(options):
    mixer = make(window_size=3, **options)
    x = tokens().requires_grad_()
    pairwise = torch.rand(2, 3, 13, 13, generator=torch.Generator().manual_seed(0)) < 0.7
    mask = Mask(valid=torch.arange(13) < torch.tensor([[13], [8]]), pairwise=pairwise)
    leaves = [x, *mixer.parameters()]
    whole = mixer(x, mask=mask)
    expected = torch.autograd.grad((whole**2).sum(), leaves)
    mixer.impl = Form(tile=4)
    parts = mixer(x, mask=mask)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    for ours, theirs in zip(torch.autograd.grad((parts**2).sum(), leaves), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_options_that_contradict_each_other_are_named():
    with pytest.raises(OptionError, match=r"alignment .* must be one of"):
        make(alignment="local-p")
    with pytest.raises(OptionError, match="renormalise needs alignment='predictive'"):
        make(renormalise=True)
