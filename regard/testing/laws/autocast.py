"""Under bfloat16 autocast forward and backward of a float32 module stay finite, and equal it to bfloat16's precision."""

import torch

from regard.core import Mask
from regard.testing.subject import B, Subject, T, gradients, require

BOUND = 0.05  # of the outputs' norm
GRADIENT_BOUND = 0.2  # of the gradient's norm: rounding switches units of relu on and off


def law(subject: Subject) -> None:
    mixer = subject.make(torch.float32, blocks="own")
    x = subject.tokens(B, T, dtype=torch.float32).requires_grad_()
    for causal in subject.causalities():
        mask = Mask(causal=causal)
        y = mixer(x, mask=mask)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = mixer(x, mask=mask)
            found = gradients(low, [x, *mixer.parameters()])
        require(torch.isfinite(low).all(), "autocast: not finite")
        error = (low.float() - y).norm() / y.norm().clamp_min(1e-12)
        require(error < BOUND, f"autocast: relative error {error:.3f}, allowed {BOUND}")
        for g in found:
            require(torch.isfinite(g).all(), "autocast: a gradient is not finite")
        wanted = gradients(y, [x])[0]
        error = (found[0] - wanted).norm() / wanted.norm().clamp_min(1e-12)
        require(error < GRADIENT_BOUND, f"autocast: relative error {error:.3f} of a gradient")
