"""Attention with relu(score)^2 in the place of softmax (Hua et al. 2022, arXiv 2202.10447).

A row needs no maximum and no sum of exponentials, so it is made and used for some queries at a time. Weights of keys
that may not be seen are set to zero after the square.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.scores import again_in_backward

QUERY_BLOCK = 256  # queries whose weights are held at once


def squared_relu_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    bias: Callable[[slice], Tensor] | None = None,
    divisor: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """relu(q k^T + bias)^2 v over the allowed keys, divided by `divisor`, or by their number where it is None.

    bias(rows) -> [b H t S] for these queries, so that none is stored for all. Weights of long sequences are made again in
    the backward.
    """
    T, S = q.shape[2], k.shape[2]
    parts = []
    for start in range(0, T, QUERY_BLOCK):
        rows = slice(start, min(start + QUERY_BLOCK, T))
        seen = rows.stop if mask.causal and T == S else S  # later keys are never allowed

        def attend(q: Tensor, k: Tensor, v: Tensor, rows=rows) -> Tensor:
            return _weights(q, k, mask, bias, divisor, rows, T, S) @ v

        block = q[:, :, rows], k[:, :, :seen], v[:, :, :seen]
        parts.append(again_in_backward(attend, *block) if T > QUERY_BLOCK else attend(*block))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def squared_relu_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    *,
    mask: Mask = OPEN,
    bias: Callable[[slice], Tensor] | None = None,
    divisor: float | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weights that `squared_relu_attention` applies."""
    T, S = q.shape[2], k.shape[2]
    return _weights(q, k, mask, bias, divisor, slice(0, T), T, S)


def _weights(
    q: Tensor,
    k: Tensor,
    mask: Mask,
    bias: Callable[[slice], Tensor] | None,
    divisor: float | None,
    rows: slice,
    T: int,
    S: int,
) -> Tensor:
    """Weights of the queries `rows` (already cut out of q) for the first keys (cut out of k)."""
    scores = q @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias(rows)[..., : k.shape[2]]
    allowed = mask.dense(T, S, device=q.device, rows=rows)
    weights = scores.relu().square() * allowed[..., : k.shape[2]]
    if divisor is None:
        return weights / allowed.sum(-1, keepdim=True).clamp_min(1)
    return weights / divisor
