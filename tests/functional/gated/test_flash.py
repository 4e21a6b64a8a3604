"""FLASH by tiles, with a backward written by hand, equals one matrix of weights over all tokens."""

import pytest
import torch

from regard import Form, Mask
from regard.mixers.flash import Flash

FORMS = {
    "default": {},
    "paper": {"scale": "paper", "relative_bias": "toeplitz", "lin_norm": "chunk"},
    "max_len": {"lin_norm": "n", "relative_bias": None},
}
SHAPES = {  # chunk_size, T
    "a chunk in a tile": (8, 19),
    "two chunks in a tile": (4, 35),
    "chunks longer than a tile": (10, 22),
    "chunks that do not fill a tile": (3, 17),
    "one tile": (2, 7),
    "one chunk": (9, 5),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_tiles_equal_the_whole(form, shape, causal, padded, threads, monkeypatch):
    """threads: without an order, a step holds one tile for each."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    chunk_size, T = SHAPES[shape]
    torch.manual_seed(0)
    options = {"chunk_size": chunk_size, "key_dim": 4, "max_len": 35, **FORMS[form]}
    mixer = Flash(6, impl=Form(tile=8), **options).double()
    x = torch.randn(3, T, 6, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(T) < torch.tensor([[T], [T // 3], [1]]) if padded else None
    mask = Mask(causal=causal, valid=valid)
    tiles = mixer(x, mask=mask)
    whole = mixer.unit.merge(x, mixer.observe(x, mask=mask).heads)
    whole = whole if valid is None else whole * valid[..., None]
    gradient, leaves = torch.randn_like(x), (x, *mixer.parameters())
    torch.testing.assert_close(tiles, whole, rtol=1e-9, atol=1e-11)
    for ours, naive in zip(
        torch.autograd.grad(tiles, leaves, gradient),
        torch.autograd.grad(whole, leaves, gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, naive, rtol=1e-9, atol=1e-11)


def test_inference_equals_training():
    mixer = Flash(6, chunk_size=8, key_dim=4, impl=Form(tile=8))
    x = torch.randn(2, 19, 6)
    for causal in (False, True):
        with torch.no_grad():
            y = mixer(x, mask=Mask(causal=causal))
        assert torch.equal(y, mixer(x, mask=Mask(causal=causal)))
