"""Attention with relu(score)^2 in the place of softmax (Hua et al. 2022, arXiv 2202.10447).

    y_i = sum over allowed j of relu(q_i . k_j + b_ij)^2 v_j / n_i

A row needs no maximum and no sum of exponentials, and the division by n_i is left to the outputs.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.choice import Impl
from regard.functional.shared.blocks import by_tiles, hidden_pairs, tiles, visible_keys
from regard.functional.shared.implementation import autocast_dtype, cut
from regard.functional.shared.numerics import add_product, wide_type
from regard.functional.shared.recompute import twice_differentiable

Bias = Callable[[slice], Tensor]  # queries -> [b H t S]


def squared_relu_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    bias: Bias | None = None,
    divisor: float | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """relu(q k^T + bias)^2 v over the allowed keys, divided by `divisor`, or by their number where it is None.

    bias(rows) -> [b H t S] for these queries, so that no bias is stored for all.
    """
    longest = max(q.shape[2], k.shape[2])  # tiles of queries, and in the backward of keys
    tile = cut("gated", impl, q).queries(q.shape[0] * q.shape[1] * longest * q.element_size())
    if bias is not None or mask.shift is not None:
        return _by_autograd(q, k, v, mask, bias, tile, divide=divisor is None) / (divisor or 1)
    dtype = autocast_dtype(q) or q.dtype
    sums = twice_differentiable(
        lambda q, k, v: _Tiled.apply(q, k, v, mask, tile),
        lambda q, k, v: _by_autograd(q, k, v, mask, None, tile, divide=False),
        *(z.to(dtype) for z in (q, k, v)),
    )
    if divisor is None:
        return sums / _counts(mask, q.shape[2], k.shape[2], tile, q.device)
    return sums / divisor


def _by_autograd(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Bias | None, tile: int, *, divide: bool
) -> Float[Tensor, "B H T V"]:
    """Sums of values; divide: by the number of keys that each query sees."""
    T, S = q.shape[2], k.shape[2]

    def attend(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        cols = visible_keys(mask, T, S, rows)
        weights, count = _weights(q, k, mask, bias, rows, cols)
        sums = weights @ v[:, :, cols]
        return sums / count if divide else sums

    return by_tiles(attend, T, tile, q, k, v)


class _Tiled(torch.autograd.Function):
    """relu(q k^T)^2 v over the allowed keys, every pass over a tile of scores in place."""

    @staticmethod
    def forward(ctx, q, k, v, mask, tile):
        ctx.save_for_backward(q, k, v)
        ctx.mask, ctx.tile = mask, tile
        T, S = q.shape[2], k.shape[2]
        y = q.new_empty(*q.shape[:3], v.shape[3])
        for rows in tiles(T, tile):
            cols = visible_keys(mask, T, S, rows)
            positive = _positive(q, k, mask, rows, cols)
            y[:, :, rows] = positive.mul_(positive) @ v[:, :, cols]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """With p = relu(scores) and g the gradient of a weight: d scores = 2 p g.

        Tiles of keys, so that the gradients of keys and values, which are wider than queries, are one product each.
        """
        q, k, v = ctx.saved_tensors
        mask, tile, T, S = ctx.mask, ctx.tile, q.shape[2], k.shape[2]
        dq = torch.zeros(q.shape, dtype=wide_type(q), device=q.device)
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        for cols in tiles(S, tile):
            rows = slice(cols.start if mask.causal and T == S else 0, T)
            q_t, dy_t, k_s, v_s = q[:, :, rows], dy[:, :, rows], k[:, :, cols], v[:, :, cols]
            positive = _positive(q, k, mask, rows, cols)
            dscores = (dy_t @ v_s.mT).mul_(positive).mul_(2)
            add_product(*(z.flatten(0, 1) for z in (dq[:, :, rows], dscores, k_s)))
            dk[:, :, cols] = dscores.mT @ q_t
            dv[:, :, cols] = positive.mul_(positive).mT @ dy_t
        return dq.to(q.dtype), dk, dv, None, None


def _positive(
    q: Tensor, k: Tensor, mask: Mask, rows: slice, cols: slice
) -> Float[Tensor, "B H t s"]:
    """relu(q k^T) of these queries and keys; zero where a pair is not allowed."""
    positive = (q[:, :, rows] @ k[:, :, cols].mT).relu_()
    hidden = hidden_pairs(mask, q.shape[2], k.shape[2], rows, cols, q.device)
    if hidden is not None:
        positive[(..., *hidden.place)].masked_fill_(hidden.pairs, 0)
    return positive


def _counts(
    mask: Mask, T: int, S: int, tile: int, device: torch.device
) -> Int[Tensor, "b h #T 1"] | int:
    """The number of keys that each query sees, at least 1."""
    if mask.only_causal and T == S:
        return torch.arange(1, T + 1, device=device)[None, None, :, None]
    if mask.valid is None and mask.pairwise is None and not mask.causal:
        return max(1, S)
    if mask.pairwise is None and not mask.causal:
        return mask.dense(1, S, device=device).sum(-1, keepdim=True).clamp_min(1)
    allowed = (mask.dense(T, S, device=device, rows=rows) for rows in tiles(T, tile))
    return torch.cat([some.sum(-1, keepdim=True) for some in allowed], dim=2).clamp_min(1)


def squared_relu_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    *,
    mask: Mask = OPEN,
    bias: Bias | None = None,
    divisor: float | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weights that `squared_relu_attention` applies."""
    everything = slice(0, q.shape[2]), slice(0, k.shape[2])
    weights, count = _weights(q, k, mask, bias, *everything)
    return weights / (count if divisor is None else divisor)


def _weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    mask: Mask,
    bias: Bias | None,
    rows: slice,
    cols: slice,
) -> tuple[Float[Tensor, "B H t s"], Int[Tensor, "b h #t 1"]]:
    """Weights of these queries for these keys before the division, and the number of keys that each query sees."""
    scores = q[:, :, rows] @ k[:, :, cols].mT
    scores = scores if bias is None else scores + bias(rows)[..., cols]
    allowed = mask.dense(q.shape[2], k.shape[2], device=q.device, rows=rows, cols=cols)
    weights = scores.relu_().square().mul_(allowed)
    return weights, allowed.sum(-1, keepdim=True).clamp_min(1)
