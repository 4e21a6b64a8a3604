"""Mixed chunks: digits."""

import pytest
import torch

from regard import Mask
from regard.mixers import mixed_chunk


def test_scores_that_overflow_no_exponential():
    """A key that may not be seen does not set the scale of those that may."""
    torch.manual_seed(0)
    mixer = mixed_chunk.MixedChunk(16, num_heads=4, chunk_size=64).double()
    x = torch.randn(1, 130, 16, dtype=torch.float64) * torch.logspace(0, 3, 130)[:, None]
    y = mixer(x, mask=Mask(causal=True))
    assert torch.isfinite(y).all()
    torch.testing.assert_close(y[:, :70], mixer(x[:, :70], mask=Mask(causal=True)))


@pytest.mark.parametrize("causal", [False, True])
def test_sums_between_chunks_are_not_rounded_to_bfloat16(causal):
    """Four hundred chunks of like tokens: a sum kept in bfloat16 would lose one chunk after another."""
    torch.manual_seed(0)
    mixer = mixed_chunk.MixedChunk(64, num_heads=1, chunk_size=64).bfloat16()
    x = torch.randn(64).expand(1, 25600, 64).bfloat16().contiguous()
    with torch.no_grad():
        y, exact = mixer(x, mask=Mask(causal)), mixer.float()(x.float(), mask=Mask(causal))
    assert y.dtype == torch.bfloat16
    assert (y - exact).norm() < 0.01 * exact.norm()
