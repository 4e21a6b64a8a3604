"""Attention with relu(score)^2 in the place of softmax (Hua et al. 2022, arXiv 2202.10447).

A row needs no maximum and no sum of exponentials, so it is made and used for some queries at a time. Weights of keys
that may not be seen are set to zero after the square. With the division left to the outputs, a block's scores are touched in
place and no [T S] tensor, nor a mask of that size, is made.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.gated.mixed_chunk import add_product
from regard.functional.shared.recompute import recomputed

QUERY_BLOCK = 256  # queries whose weights are held at once
KEY_BLOCK = 256  # keys, in the backward


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
    if bias is None:
        kind = q.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            q, k, v = (z.to(torch.get_autocast_dtype(kind)) for z in (q, k, v))
        attend = _BlockAttention.apply if torch.is_grad_enabled() else _attended
        return attend(q, k, v, mask, divisor)
    parts = []
    for rows, seen in _blocks(T, S, mask):

        def attend(q: Tensor, k: Tensor, v: Tensor, rows=rows) -> Tensor:
            return _weights(q, k, mask, bias, divisor, rows, T, S) @ v

        block = q[:, :, rows], k[:, :, :seen], v[:, :, :seen]
        parts.append(recomputed(attend, *block) if T > QUERY_BLOCK else attend(*block))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _blocks(T: int, S: int, mask: Mask) -> Iterator[tuple[slice, int]]:
    """Queries, and how many keys they can meet: later ones are never allowed."""
    for start in range(0, T, QUERY_BLOCK):
        rows = slice(start, min(start + QUERY_BLOCK, T))
        yield rows, rows.stop if mask.causal and T == S else S


def _attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, divisor: float | None
) -> Float[Tensor, "B H T V"]:
    """One pass over the scores of a block for each thing done to them, all in place: relu, square, forget."""
    T, S = q.shape[2], k.shape[2]

    def attend(rows: slice, seen: int) -> Tensor:
        positive = (q[:, :, rows] @ k[:, :, :seen].transpose(-1, -2)).relu_()
        part = _part(mask, divisor, rows, seen, T, S, q)
        weights = part.forget(positive.mul_(positive))
        return (weights @ v[:, :, :seen]).mul_(part.scale)

    if T <= QUERY_BLOCK:
        return attend(slice(0, T), S)
    y = q.new_empty(*q.shape[:3], v.shape[3])
    for rows, seen in _blocks(T, S, mask):
        y[:, :, rows] = attend(rows, seen)
    return y


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, divisor):
        ctx.save_for_backward(q, k, v)
        ctx.mask, ctx.divisor = mask, divisor
        return _attended(q, k, v, mask, divisor)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """With p = relu(scores) and g the gradient of a weight: d scores = 2 p g.

        Some keys at a time, whose gradients are one product over all queries; those of queries, far narrower than
        values, are summed. Half of the division is in q, and half in what is summed.
        """
        q, k, v = ctx.saved_tensors
        T, S, mask = q.shape[2], k.shape[2], ctx.mask
        root = _scale(mask, ctx.divisor, T, S, q).sqrt()
        q = q * root
        wide = torch.promote_types(q.dtype, torch.float32)
        dq = torch.zeros(q.shape, dtype=wide, device=q.device)
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        for start in range(0, S, KEY_BLOCK):
            cols = slice(start, min(start + KEY_BLOCK, S))
            rows = slice(start if mask.causal and T == S else 0, T)
            q_t, dy_t, k_s, v_s = q[:, :, rows], dy[:, :, rows], k[:, :, cols], v[:, :, cols]
            positive = _forget(q_t @ k_s.transpose(-1, -2), mask, rows, cols, T, S).relu_()
            dscores = (dy_t @ v_s.transpose(-1, -2)).mul_(positive).mul_(2)
            add_product(
                *(z.flatten(0, 1) for z in (dq[:, :, rows], dscores.transpose(-1, -2), k_s))
            )
            dk[:, :, cols] = dscores.transpose(-1, -2) @ q_t
            dv[:, :, cols] = positive.mul_(positive).transpose(-1, -2) @ dy_t
        return dq.to(q.dtype) * root, dk, dv, None, None


def _scale(
    mask: Mask, divisor: float | None, T: int, S: int, like: Tensor
) -> Float[Tensor, "b h T 1"]:
    """1 / the divisor of every query."""
    each = []
    for rows, seen in _blocks(T, S, mask):
        scale = _part(mask, divisor, rows, seen, T, S, like).scale
        scale = torch.as_tensor(scale, dtype=like.dtype, device=like.device)
        if scale.dim() == 0:
            return scale.expand(1, 1, T, 1)
        each.append(scale.expand(-1, -1, rows.stop - rows.start, -1))
    return torch.cat(each, dim=2)


def _forget(
    scores: Float[Tensor, "B H t s"], mask: Mask, rows: slice, cols: slice, T: int, S: int
) -> Float[Tensor, "B H t s"]:
    """In place: zero where a key may not be seen."""
    if mask.valid is None and mask.pairwise is None and mask.shift is None:
        if not mask.causal:
            return scores
        if T == S:  # only queries beside the keys can be earlier than one
            scores[:, :, : scores.shape[3]].tril_()
            return scores
    return scores.mul_(mask.dense(T, S, device=scores.device, rows=rows, cols=cols))


class _Part(NamedTuple):
    allowed: Bool[Tensor, "b h t s"] | None  # of the last s keys of a block; None: all are
    scale: Float[Tensor, "b h t 1"] | float  # of outputs

    def forget(self, weights: Tensor) -> Tensor:
        """In place: zero where a key may not be seen."""
        if self.allowed is not None:
            weights[..., -self.allowed.shape[-1] :] *= self.allowed
        return weights


def _part(
    mask: Mask, divisor: float | None, rows: slice, seen: int, T: int, S: int, like: Tensor
) -> _Part:
    free = mask.valid is None and mask.pairwise is None and mask.shift is None
    if free and not mask.causal:
        return _Part(None, 1 / (S if divisor is None else divisor))
    if free and T == S:  # only keys beside the queries can be later than one
        t = rows.stop - rows.start
        allowed = torch.ones(t, t, dtype=torch.bool, device=like.device).tril()[None, None]
        count = torch.arange(rows.start + 1, rows.stop + 1, device=like.device)[None, None, :, None]
    else:
        allowed = mask.dense(T, S, device=like.device, rows=rows)[..., :seen]
        count = allowed.sum(-1, keepdim=True).clamp_min(1)
    whole = torch.as_tensor(count if divisor is None else divisor, device=like.device)
    return _Part(allowed, whole.double().reciprocal().to(like.dtype))


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
