"""The exponential that does not slow down where it vanishes."""

import math

import torch

from regard.functional.rows import exp, exp_


def test_equals_exp_and_is_exactly_zero_at_minus_infinity():
    x = torch.tensor([0.0, 1.0, -1.0, 20.0, -80.0, -200.0, -math.inf])
    torch.testing.assert_close(exp(x), x.exp(), rtol=1e-5, atol=0)
    assert exp(x)[-1] == 0
    y = x.clone()
    assert exp_(y) is y
    torch.testing.assert_close(y, exp(x), rtol=0, atol=0)


def test_has_the_gradient_of_exp():
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(exp, x)
