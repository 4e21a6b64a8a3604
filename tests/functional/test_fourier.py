"""The Fourier transform of rows without padding."""

import pytest
import torch

from regard.functional.fourier import fourier_mixing


@pytest.mark.parametrize("T, D", [(1, 1), (1, 6), (2, 1), (5, 4), (6, 5), (8, 8)])
def test_equals_the_transform_over_both_axes(T, D):
    x = torch.randn(2, T, D, dtype=torch.float64)
    torch.testing.assert_close(fourier_mixing(x), torch.fft.fft2(x).real, rtol=0, atol=1e-12)
