"""Exact softmax attention (Vaswani et al. 2017, arXiv 1706.03762) on the fused kernel."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import by_tiles, visible_keys
from regard.functional.shared.implementation import TILE, Impl, cut, transformed
from regard.functional.shared.recompute import twice_differentiable


def softmax_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the allowed keys; G divides H. A query with no allowed key gives zero.

    scale: 1/sqrt(K) by default. exclude_self: a query may see itself only if it may see nothing else
    (shared-QK attention, arXiv 2001.04451); it needs T = S. dropout: probability, applied as given.
    impl: size of the tiles of queries for which a mask is computed.
    """
    T, S = q.shape[2], k.shape[2]
    kernel = partial(fused, scale=scale, dropout=dropout)
    restricted = mask.valid is not None or mask.pairwise is not None or mask.causal
    if not exclude_self:
        if not restricted:
            return kernel(q, k, v)
        if mask.only_causal and T == S:
            return kernel(q, k, v, is_causal=True)

    def attend(rows: slice) -> Float[Tensor, "B H t V"]:
        cols = visible_keys(mask, T, S, rows)
        allowed = allowed_pairs(mask, T, S, rows, cols, exclude_self, q.device)
        some = allowed.any(-1, keepdim=True)
        y = kernel(q[:, :, rows], k[:, :, cols], v[:, :, cols], allowed | ~some)
        return torch.where(some, y, y.new_zeros(()))

    mask_is_computed = (mask.causal or exclude_self) and mask.pairwise is None
    how = cut("softmax", impl, q)
    return by_tiles(attend, T, how.queries(q.shape[0] * S) if mask_is_computed else T, keep=True)


def fused(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    mask: Shaped[Tensor, "#B #H #T S"] | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """torch's fused kernel. mask: allowed pairs, at least one in each row, or a bias of the scores.

    The kernel has no second derivative: plain operations have, one tile of queries at a time.
    """
    grouped = is_grouped(q, k)

    def fast(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, mask, dropout, is_causal, scale=scale, enable_gqa=grouped
        )

    def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        T, S = q.shape[2], k.shape[2]
        factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
        if grouped:
            k, v = (z.repeat_interleave(q.shape[1] // z.shape[1], dim=1) for z in (k, v))

        def attend(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
            scores = factor * q[:, :, rows] @ k.mT
            some = mask if mask is None or mask.shape[2] == 1 else mask[:, :, rows]
            if is_causal:
                some = Mask(causal=True).dense(T, S, device=q.device, rows=rows)
            if some is not None and some.dtype == torch.bool:
                scores = scores.masked_fill(~some, -math.inf)
            elif some is not None:
                scores = scores + some
            return F.dropout(scores.softmax(-1), dropout) @ v

        return by_tiles(attend, T, TILE, q, k, v)

    if dropout and not transformed():  # a second draw would be another function
        return fast(q, k, v, mask)
    return twice_differentiable(fast, plain, q, k, v, mask, inlined=True)


def is_grouped(q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"]) -> bool:
    """A plain bool, which the fused kernel wants, also where a compiler has a symbol for the number of heads."""
    return True if k.shape[1] != q.shape[1] else False


def allowed_pairs(
    mask: Mask,
    T: int,
    S: int,
    rows: slice,
    cols: slice,
    exclude_self: bool,
    device: torch.device,
) -> Bool[Tensor, "b h t s"]:
    """The pairs that softmax attention uses, for these queries and keys; `exclude_self` needs all keys that they may see."""
    allowed = mask.dense(T, S, device=device, rows=rows, cols=cols)
    if exclude_self:
        queries, keys = torch.arange(T, device=device)[rows], torch.arange(S, device=device)[cols]
        oneself = queries[:, None] == keys
        others = allowed & ~oneself
        allowed = torch.where(others.any(-1, keepdim=True), others, allowed & oneself)
    return allowed


def softmax_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    bias: Float[Tensor, "b H T S"] | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weights that `softmax_attention` applies, before dropout; rows without a key are zero.

    bias: added to the scaled scores.
    """
    T, S = q.shape[2], k.shape[2]
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * q @ k.transpose(-1, -2)
    scores = scores if bias is None else scores + bias
    allowed = allowed_pairs(mask, T, S, slice(0, T), slice(0, S), exclude_self, q.device)
    return masked_softmax(scores, allowed)


def masked_softmax(
    scores: Float[Tensor, "*B T S"], allowed: Bool[Tensor, "*b t S"]
) -> Float[Tensor, "*c T S"]:
    """Softmax over the allowed keys; a row without any gives zeros, with finite gradients."""
    some = allowed.any(-1, keepdim=True)
    weights = scores.masked_fill(~(allowed | ~some), -math.inf).softmax(-1)
    return torch.where(some, weights, weights.new_zeros(()))
