"""FLASH step by step, and written by hand backwards, is FLASH of whole tensors."""

from collections.abc import Iterator

import pytest
import torch

from regard import Mask
from regard.mixers import flash

FORMS = {
    "default": {},
    "paper": {"scale": "paper", "relative_bias": "toeplitz", "lin_norm": "chunk"},
    "max_len": {"lin_norm": "n", "relative_bias": None},
}
SHAPES = {
    "a chunk in a step": (256, 600),
    "steps of two blocks": (64, 1100),
    "chunks longer than a step": (300, 650),
    "chunks in a step, which they do not fill": (60, 500),
    "one step": (32, 100),
    "one chunk": (64, 50),
}


@pytest.fixture(params=[1, 2], ids="threads {}".format)
def threads(request) -> Iterator[int]:
    """Without an order, that many blocks are computed at once."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_steps_equal_the_whole(form, shape, causal, padded, monkeypatch):
    chunk_size, T = SHAPES[shape]
    torch.manual_seed(0)
    mixer = flash.Flash(6, chunk_size=chunk_size, key_dim=4, max_len=1100, **FORMS[form]).double()
    x = torch.randn(3, T, 6, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(T) < torch.tensor([[T], [T // 3], [1]]) if padded else None
    gradient = torch.randn_like(x)
    found = []
    for longest in (flash.LONGEST_CHUNK, 0):
        monkeypatch.setattr(flash, "LONGEST_CHUNK", longest)
        y = mixer(x, mask=Mask(causal=causal, valid=valid))
        found.append([y, *torch.autograd.grad(y, (x, *mixer.parameters()), gradient)])
    for ours, naive in zip(*found, strict=True):
        torch.testing.assert_close(ours, naive, rtol=1e-9, atol=1e-11)


def test_inference_equals_training():
    mixer = flash.Flash(6, chunk_size=256, key_dim=4).double()
    x = torch.randn(2, 600, 6, dtype=torch.float64)
    for causal in (False, True):
        with torch.no_grad():
            y = mixer(x, mask=Mask(causal=causal))
        torch.testing.assert_close(y, mixer(x, mask=Mask(causal=causal)), rtol=0, atol=1e-12)
