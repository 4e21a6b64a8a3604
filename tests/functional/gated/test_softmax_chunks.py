"""MC-TFM++ chunk by chunk, and written by hand backwards, is that of whole tensors."""

import pytest
import torch

from regard import Mask
from regard.mixers import mixed_chunk


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk_size, T", [(64, 130), (200, 500)])
def test_chunks_equal_the_whole(chunk_size, T, causal, padded, monkeypatch):
    torch.manual_seed(0)
    mixer = mixed_chunk.MixedChunk(16, num_heads=4, chunk_size=chunk_size).double()
    x = torch.randn(3, T, 16, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(T) < torch.tensor([[T], [T // 3], [1]]) if padded else None
    gradient = torch.randn_like(x)
    found = []
    for sizes in (mixed_chunk.CHUNKS, ()):
        monkeypatch.setattr(mixed_chunk, "CHUNKS", sizes)
        y = mixer(x, mask=Mask(causal=causal, valid=valid))
        found.append([y, *torch.autograd.grad(y, (x, *mixer.parameters()), gradient)])
    for ours, naive in zip(*found, strict=True):
        torch.testing.assert_close(ours, naive, rtol=1e-9, atol=1e-11)


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
