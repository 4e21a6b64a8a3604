"""State dict round trip, deepcopy, pickle and device move keep the function."""

import copy
import io

import torch

from regard.core import Mask
from regard.testing.subject import B, Subject, T, require


def law(subject: Subject) -> None:
    mixer = subject.make(seed=1)
    mask = Mask(causal=not subject.can.bidirectional)
    x = subject.tokens(B, T)
    y = mixer(x, mask=mask)
    other = subject.make(seed=2)
    other.load_state_dict(mixer.state_dict())
    require(torch.equal(other(x, mask=mask), y), "a state dict does not restore the function")
    clone = copy.deepcopy(mixer)
    require(torch.equal(clone(x, mask=mask), y), "a deep copy is another function")
    require(clone.options == mixer.options, "a deep copy loses the options")
    stored = io.BytesIO()
    torch.save(mixer, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    require(torch.equal(loaded(x, mask=mask), y), "a pickled copy is another function")
    elsewhere = "cuda" if torch.cuda.is_available() else "meta"
    moved = mixer.to(elsewhere)
    got = moved(x.to(elsewhere), mask=mask)
    require(
        got.device.type == elsewhere and got.shape == y.shape,
        f"on {elsewhere}: a tensor stays behind",
    )
    if elsewhere == "cuda":
        require((got.cpu() - y).abs().max() < 1e-10, "on cuda: another function")
