"""Dice is batch normalisation's gate, and PReLU at its limit."""

import torch

from regard.nn.dice import Dice

S = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)).double()


def make():
    dice = Dice(4).double()
    dice.alpha.data = torch.tensor([0.1, -0.3, 0.0, 0.7]).double()
    return dice


def test_its_gate_is_batch_normalisation_without_affine_part():
    dice, norm = make(), torch.nn.BatchNorm1d(4, affine=False, eps=1e-8).double()
    for training in (True, True, False):
        p = norm.train(training)(S).sigmoid()
        found = dice.train(training)(S)
        torch.testing.assert_close(found, p * S + (1 - p) * dice.alpha * S, rtol=0, atol=1e-12)
    torch.testing.assert_close(dice.mean, norm.running_mean)
    torch.testing.assert_close(dice.variance, norm.running_var)


def test_statistics_are_over_valid_positions():
    dice, alone = make().train(), make().train()
    valid = torch.arange(11) % 3 > 0
    found = dice(S.masked_fill(~valid[:, None], 1e6), valid)
    torch.testing.assert_close(found[valid], alone(S[valid]), rtol=0, atol=1e-12)
    torch.testing.assert_close(dice.variance, alone.variance)


def test_nothing_valid_moves_no_average():
    dice = make().train()
    assert dice(S, torch.zeros(11, dtype=torch.bool)).isfinite().all()
    assert (dice.mean == 0).all() and (dice.variance == 1).all()
