"""Tiles of queries give what one whole matrix of weights gives."""

import pytest
import torch

from regard import Form, Mask
from regard.functional.squared_relu import squared_relu_attention, weights

T, S = 11, 9
VALID = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
PAIRS = torch.rand(2, 1, T, S, generator=torch.Generator().manual_seed(0)) < 0.6
MASKS = {
    "open": (Mask(), S),
    "causal": (Mask(causal=True), T),
    "causal across": (Mask(causal=True), S),
    "valid": (Mask(valid=VALID), S),
    "pairwise": (Mask(pairwise=PAIRS), S),
    "causal and pairwise": (Mask(causal=True, pairwise=PAIRS), S),
}


@pytest.mark.parametrize("divisor", [None, 3.0])
@pytest.mark.parametrize("case", MASKS)
def test_tiles_equal_the_whole(case, divisor):
    mask, keys = MASKS[case]
    generator = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(2, 1, n, d, dtype=torch.float64, generator=generator).requires_grad_()
        for n, d in ((T, 3), (keys, 3), (keys, 5))
    )
    whole = weights(q, k, mask.dense(T, keys), divisor=divisor) @ v
    blocks = squared_relu_attention(q, k, v, mask=mask, divisor=divisor, impl=Form(tile=4))
    torch.testing.assert_close(blocks, whole, rtol=1e-12, atol=1e-12)
    gradient = torch.randn(whole.shape, dtype=torch.float64, generator=generator)
    for ours, naive in zip(
        torch.autograd.grad(blocks, (q, k, v), gradient),
        torch.autograd.grad(whole, (q, k, v), gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, naive, rtol=1e-11, atol=1e-11)
