"""Attention whose logits are given, not scored (Synthesizer, Tay et al. 2020, arXiv 2005.00743)."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.softmax import masked_softmax

QUERY_BLOCK = 256  # queries whose weights are held at once


def synthesizer_attention(
    rows: Float[Tensor, "b H T F"],
    score: Callable[[Tensor, int], Tensor],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
) -> Float[Tensor, "B H T V"]:
    """softmax(score(rows)) v over the allowed keys, some queries at a time; a query without a key gives zero.

    score(rows [b H t F], S) -> logits [b H t S] of these queries for the first S keys.
    """
    T, S = rows.shape[2], v.shape[2]
    parts = []
    for start in range(0, T, QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, T)
        seen = (
            stop if mask.causal and T == S else S
        )  # keys after the block's last query are never allowed
        allowed = mask.dense(T, S, device=v.device, rows=slice(start, stop))[..., :seen]
        weights = masked_softmax(score(rows[:, :, start:stop], seen), allowed)
        parts.append(weights @ v[:, :, :seen])
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def synthesizer_weights(
    rows: Float[Tensor, "b H T F"],
    score: Callable[[Tensor, int], Tensor],
    S: int,
    *,
    mask: Mask = OPEN,
) -> Float[Tensor, "b H T S"]:
    """The weights that `synthesizer_attention` applies."""
    return masked_softmax(score(rows, S), mask.dense(rows.shape[2], S, device=rows.device))


def at_positions(
    logits: Float[Tensor, "B H T n"], position: Int[Tensor, "B S"]
) -> Float[Tensor, "B H T S"]:
    """The columns of logits over positions that belong to stored keys; those at -1 are to be masked."""
    index = position.clamp_min(0)[:, None, None, :]
    return logits.gather(-1, index.expand(*logits.shape[:-1], -1))
