"""Under bfloat16 autocast a float32 module runs, stays finite, and gives the same function to bfloat16's precision."""

import torch

from regard.core import Mask
from regard.testing.subject import B, Subject, T, require

BOUND = 0.05  # of the outputs' norm


def law(subject: Subject) -> None:
    mixer = subject.make(torch.float32, blocks="own")
    x = subject.tokens(B, T, dtype=torch.float32)
    for causal in subject.causalities():
        mask = Mask(causal=causal)
        y = mixer(x, mask=mask)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = mixer(x, mask=mask)
        require(torch.isfinite(low).all(), "autocast: not finite")
        error = (low.float() - y).norm() / y.norm().clamp_min(1e-12)
        require(error < BOUND, f"autocast: relative error {error:.3f}, allowed {BOUND}")
