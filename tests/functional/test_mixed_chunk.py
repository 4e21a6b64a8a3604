"""Mixed chunks, and the gated units around them: digits, free lengths, and what is kept for the backward pass."""

import pytest
import torch

import regard
from regard import Mask
from regard.functional.rows import recorded
from regard.mixers import mixed_chunk

GATED = {
    "gau": ("gau", {}),
    "flash": ("flash", {"chunk_size": 16}),
    "flash, toeplitz": (
        "flash",
        {"chunk_size": 16, "scale": "paper", "relative_bias": "toeplitz", "lin_norm": "chunk"},
    ),
    "mixed_chunk": ("mixed_chunk", {"chunk_size": 16, "num_heads": 3}),
    "mixed_chunk, relu2": ("mixed_chunk", {"chunk_size": 16, "num_heads": 3, "local_fn": "relu2"}),
}


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


@pytest.mark.parametrize("causal", [False, True])
def test_the_fused_softmax_gives_what_the_plain_form_gives(causal):
    """Also where chunks are filled up, hold no token at all, or hold others in each row."""
    fused, plain = (
        regard.build("mixed_chunk", dim=24, num_heads=3, chunk_size=16, impl=impl).double()
        for impl in ("fused", "plain")
    )
    plain.load_state_dict(fused.state_dict())
    x = torch.randn(2, 70, 24, dtype=torch.float64, requires_grad=True)
    for valid in (None, torch.arange(70) < torch.tensor([[70], [23]])):
        with recorded() as used:
            y = fused(x, mask=Mask(causal, valid=valid))
        assert used == {"fused"}
        expected = plain(x, mask=Mask(causal, valid=valid))
        torch.testing.assert_close(y, expected)
        found, wanted = (torch.autograd.grad(z.sin().sum(), x) for z in (y, expected))
        torch.testing.assert_close(found, wanted)
