"""Attention with relu(score)^2 in the place of softmax (Hua et al. 2022, arXiv 2202.10447).

A row needs no maximum and no sum of exponentials. Weights of keys that are not allowed are set to zero, and the division
is left to the outputs, so that the scores of a tile are changed in place and nothing of size [T S] is stored.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import by_tiles, hidden_pairs, tiles, visible_keys
from regard.functional.shared.implementation import Impl, cut
from regard.functional.shared.numerics import add_product, wide_type


def squared_relu_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    bias: Callable[[slice], Tensor] | None = None,
    divisor: float | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """relu(q k^T + bias)^2 v over the allowed keys, divided by `divisor`, or by their number where it is None.

    bias(rows) -> [b H t S] for these queries, so that none is stored for all. The backward computes weights again.
    """
    T, S, tile = q.shape[2], k.shape[2], cut("gated", impl, q).tile
    if bias is None:
        kind = q.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            q, k, v = (z.to(torch.get_autocast_dtype(kind)) for z in (q, k, v))
        return _Attention.apply(q, k, v, mask, divisor, tile)

    def attend(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        seen = visible_keys(mask, T, S, rows)
        q, k, v = q[:, :, rows], k[:, :, seen], v[:, :, seen]
        return _weights(q, k, mask, bias, divisor, rows, T, S) @ v

    return by_tiles(attend, T, tile, q, k, v)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, divisor, tile):
        T, S = q.shape[2], k.shape[2]
        scale = _scale(mask, divisor, T, S, tile, q)
        y = q.new_empty(*q.shape[:3], v.shape[3])
        for rows in tiles(T, tile):
            seen = visible_keys(mask, T, S, rows)
            positive = (q[:, :, rows] @ k[:, :, seen].mT).relu_()
            weights = _hide(positive.mul_(positive), mask, T, S, rows, seen)
            torch.mul(weights @ v[:, :, seen], scale[:, :, rows], out=y[:, :, rows])
        ctx.save_for_backward(q, k, v, scale)
        ctx.mask, ctx.tile = mask, tile
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """With p = relu(scores) and g the gradient of a weight: d scores = 2 p g.

        By tiles of keys, whose gradients are one product over all queries; those of queries, far narrower than values,
        are summed. Half of the division is in q, and half in dq.
        """
        q, k, v, scale = ctx.saved_tensors
        mask, T, S = ctx.mask, q.shape[2], k.shape[2]
        root = scale.sqrt()
        q = q * root
        dq = torch.zeros_like(q, dtype=wide_type(q))
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        for cols in tiles(S, ctx.tile):
            rows = slice(cols.start if mask.causal and T == S else 0, T)
            q_t, dy_t, k_s, v_s = q[:, :, rows], dy[:, :, rows], k[:, :, cols], v[:, :, cols]
            positive = _hide(q_t @ k_s.mT, mask, T, S, rows, cols).relu_()
            dscores = (dy_t @ v_s.mT).mul_(positive).mul_(2)
            add_product(*(z.flatten(0, 1) for z in (dq[:, :, rows], dscores, k_s)))
            dk[:, :, cols] = dscores.mT @ q_t
            dv[:, :, cols] = positive.mul_(positive).mT @ dy_t
        return dq.to(q.dtype) * root, dk, dv, None, None, None


def _scale(
    mask: Mask, divisor: float | None, T: int, S: int, tile: int, like: Tensor
) -> Float[Tensor, "b h T 1"]:
    """1 / the divisor of every query."""
    if divisor is not None:
        return torch.full((1, 1, T, 1), 1 / divisor, dtype=like.dtype, device=like.device)
    if mask.valid is None and mask.pairwise is None:
        last = mask.last_key(T, S, like.device)
        count = (last + 1 if mask.causal else torch.full_like(last, S))[:, None, :, None]
    else:
        allowed = (mask.dense(T, S, device=like.device, rows=rows) for rows in tiles(T, tile))
        counts = [some.sum(-1, keepdim=True) for some in allowed]
        count = counts[0] if counts[0].shape[2] == 1 else torch.cat(counts, dim=2)
    return count.clamp_min(1).double().reciprocal().to(like.dtype).expand(-1, -1, T, -1)


def _hide(
    scores: Float[Tensor, "B H t s"], mask: Mask, T: int, S: int, rows: slice, cols: slice
) -> Float[Tensor, "B H t s"]:
    """In place: zero where a key is not allowed."""
    hidden = hidden_pairs(mask, T, S, rows, cols, scores.device)
    if hidden is not None:
        scores[:, :, *hidden.place].masked_fill_(hidden.pairs, 0)
    return scores


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
    """Weights of the queries `rows` for the first keys; q and k hold no others."""
    scores = q @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias(rows)[..., : k.shape[2]]
    allowed = mask.dense(T, S, device=q.device, rows=rows)
    weights = scores.relu().square() * allowed[..., : k.shape[2]]
    if divisor is None:
        return weights / allowed.sum(-1, keepdim=True).clamp_min(1)
    return weights / divisor
