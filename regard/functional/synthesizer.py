"""Attention whose logits are given, not scored (Synthesizer, Tay et al. 2020, arXiv 2005.00743)."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.scores import again_in_backward
from regard.functional.softmax import masked_softmax

QUERY_BLOCK = 256  # queries whose weights are held at once

Logits = Callable[[slice, int], Tensor]


def synthesizer_attention(
    logits: Logits, v: Float[Tensor, "B H S V"], *, T: int, mask: Mask = OPEN
) -> Float[Tensor, "B H T V"]:
    """softmax(logits) v over the allowed keys, for T queries, some at a time; a query without a key gives zero.

    logits(rows, S) -> [b H t S] of these queries for the first S keys; made again in the backward of long sequences.
    """
    S = v.shape[2]
    parts = []
    for start in range(0, T, QUERY_BLOCK):
        rows = slice(start, min(start + QUERY_BLOCK, T))
        seen = rows.stop if mask.causal and T == S else S  # later keys are never allowed

        def attend(v: Tensor, rows=rows, seen=seen) -> Tensor:
            allowed = mask.dense(T, S, device=v.device, rows=rows)[..., :seen]
            return masked_softmax(logits(rows, seen), allowed) @ v

        v_seen = v[:, :, :seen]
        parts.append(again_in_backward(attend, v_seen) if T > QUERY_BLOCK else attend(v_seen))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def synthesizer_weights(
    logits: Logits, T: int, S: int, *, mask: Mask = OPEN, device: torch.device | None = None
) -> Float[Tensor, "b H T S"]:
    """The weights that `synthesizer_attention` applies."""
    return masked_softmax(logits(slice(0, T), S), mask.dense(T, S, device=device))


def at_positions(
    logits: Float[Tensor, "B H T n"], position: Int[Tensor, "B S"]
) -> Float[Tensor, "B H T S"]:
    """The columns of logits over positions that belong to stored keys; those at -1 are to be masked."""
    index = position.clamp_min(0)[:, None, None, :]
    return logits.gather(-1, index.expand(*logits.shape[:-1], -1))
