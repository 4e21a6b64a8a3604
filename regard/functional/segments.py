"""Long sequences a segment at a time: what a segment needs is made, used while it is in cache, and made again in the backward pass.

A causal mechanism with a state has this form already. What stays is its outputs, and the state at each border.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BYTES = (
    4 << 20
)  # of one tensor of features: larger ones are fresh memory at every call, which costs more than the sums
SHORTEST = 128

Step = Callable[
    ..., tuple[Tensor, Any]
]  # (state, *parts) -> (outputs of these tokens, state after them)


def segment_length(features: int, like: Tensor) -> int | None:
    """Tokens in a segment, for `features` numbers to a token of each head of `like` [B H T K]; None: take all at once."""
    if like.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    B, H, T = like.shape[:3]
    wanted = BYTES // (4 * B * H * features)
    size = max(SHORTEST, 1 << max(wanted, 1).bit_length() - 1)
    return size if size < T else None


def in_segments(step: Step, state: Any, tensors: tuple[Tensor | None, ...], size: int) -> Tensor:
    """Outputs [B H T V] of all tokens. Tensors [B H T ..] are cut along dim 2; None stays None."""
    T = next(z.shape[2] for z in tensors if z is not None)
    count = -(-T // size)
    parts = [[None] * count if z is None else z.split(size, dim=2) for z in tensors]
    outputs = []
    for part in zip(*parts, strict=True):
        if torch.is_grad_enabled():
            y, state = checkpoint(step, state, *part, use_reentrant=False, preserve_rng_state=False)
        else:
            y, state = step(state, *part)
        outputs.append(y)
    return torch.cat(outputs, dim=2)
