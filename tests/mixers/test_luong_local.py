"""Luong's local attention beyond the laws: what the Gaussian does."""

import torch

import regard


def tokens(length=13, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, 24, generator=generator).double()


def make(**options):
    torch.manual_seed(0)
    return regard.build("luong_local", dim=24, num_heads=3, **options).double()


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
