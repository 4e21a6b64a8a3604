"""Exact softmax attention (Vaswani et al. 2017, arXiv 1706.03762).

y_i = sum_j a_ij v_j,   a_i = softmax over the allowed j of  scale q_i . k_j + bias_ij
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from regard.core import OPEN, Above0, Mask, Mixed, Queries, Rate, SharedKeys, SharedValues
from regard.functional.rows import (
    TILE,
    Impl,
    choose,
    grouped,
    masked_softmax,
    of_any_length,
    scores,
    tiled,
    upto,
    visible_keys,
)

Bias = Callable[[slice, slice], Tensor]
"""Queries, keys -> what is added to their scaled scores, [b H t s]; so that no [H T S] is stored."""


def softmax_attention(
    q: Queries,
    k: SharedKeys,
    v: SharedValues,
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    soft_cap: Above0 | None = None,
    bias: Bias | None = None,
    window: int | None = None,
    exclude_self: bool = False,
    dropout: Rate = 0.0,
    impl: Impl = "auto",
) -> Mixed:
    """softmax(scale q k^T + bias) v over the allowed keys; G divides H. A query with no allowed key gives zero.

    scale: 1 / sqrt(K) by default. soft_cap: c of c tanh(z / c), which the scaled scores become before the bias. window: under `mask.causal`, a query sees no more than the last `window` keys. exclude_self: a query may
    see itself only if it may see nothing else (shared-QK attention, arXiv 2001.04451); it needs T = S. dropout: probability, applied
    as given. impl: see `functional.rows`.
    """
    T, S = q.shape[2], k.shape[2]
    how: dict[str, Any] = {"scale": scale, "dropout": dropout, "soft_cap": soft_cap}
    attention = choose("softmax", softmax_rows, impl, tile=TILE)
    if bias is None and window is None and not exclude_self:
        if _only_causal(mask) and T == S:
            return attention(q, k, v, None, causal=True, **how)
        if not mask.causal:
            return attend(q, k, v, _given(mask), impl=impl, **how)

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        cols = visible_keys(mask, T, S, rows, window)
        k, v = k[:, :, cols], v[:, :, cols]
        pairs = allowed_pairs(mask, T, S, rows, cols, exclude_self, window, q)
        if bias is None:
            return attend(q, k, v, pairs, impl=impl, **how)
        seen = pairs.any(-1, keepdim=True)
        y = attention(q, k, v, bias(rows, cols).masked_fill(seen & ~pairs, -torch.inf), **how)
        return y.masked_fill(~seen, 0)

    tile = getattr(impl, "tile", None) or TILE
    if window is not None:  # a tile of fewer queries sees fewer keys
        tile = min(tile, max(window, tile // 2))
    return tiled(some, tile, q, k, v, random=dropout > 0)


def latent_attention(
    q: Queries,
    z: Float[Tensor, "B 1 S Z"],
    weight: Float[Tensor, "H W M"],
    *,
    mask: Mask,
    impl: Impl,
) -> Mixed:
    """`softmax_attention` to keys [W_k c; r] and values W_v c of latents z = [c; r], in the absorbed order: no key and no value is made.

    weight: of each head W_k and then W_v, W = K - (Z - M) + V rows.
    """
    M = weight.shape[2]
    rest = z.shape[3] - M
    K = q.shape[3]
    plain, turned = q.split([K - rest, rest], -1)
    of_k, of_v = weight.tensor_split([K - rest], 1)
    q = torch.cat([plain @ of_k, turned], -1)
    return softmax_attention(q, z, z[..., :M], mask=mask, scale=K**-0.5, impl=impl) @ of_v.mT


def attend(
    q: Queries,
    k: SharedKeys,
    v: SharedValues,
    mask: Shaped[Tensor, "#B #H #T S"] | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    soft_cap: float | None = None,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Mixed:
    """softmax(scale q k^T) v; G divides H.

    mask: allowed pairs, or a bias that is added to the scores. causal: j <= i, for T = S. scale: 1 / sqrt(K) by default.
    soft_cap: c, of `capped`. A query with no allowed key gives zero.
    """
    some = None
    if mask is not None and mask.dtype == torch.bool:
        some = mask.any(-1, keepdim=True)
        mask = mask | ~some
    fused = choose("softmax", softmax_rows, impl, tile=TILE)
    y = fused(q, k, v, mask, causal=causal, scale=scale, soft_cap=soft_cap, dropout=dropout)
    return y if some is None else y.masked_fill(~some, 0)


def softmax_rows(
    q, k, v, mask=None, *, causal=False, scale=None, soft_cap=None, dropout=0.0, tile: int = TILE
) -> Mixed:
    """The plain form of `attend`, with the same arguments."""
    H = q.shape[1]
    if k.shape[1] != H:
        k, v = grouped(k, H), grouped(v, H)

    factor = q.shape[-1] ** -0.5 if scale is None else scale

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        wide = torch.promote_types(q.dtype, torch.float32)
        found = factor * q.to(wide) @ k.to(wide).mT
        found = found if soft_cap is None else capped(found, soft_cap)
        here = mask if mask is None or mask.shape[2] == 1 else mask[:, :, rows]
        if causal:
            place = upto(k.shape[2], q)
            here = place <= place[rows, None]
        if here is not None and here.dtype == torch.bool:
            found = found.masked_fill(~here, torch.finfo(found.dtype).min)
        elif here is not None:
            found = found + here
        return F.dropout(found.softmax(-1).type_as(v), dropout) @ v

    T = q.shape[2]
    if of_any_length(T) or T <= tile:
        return some(slice(0, T), q, k, v)
    return tiled(some, tile, q, k, v, random=dropout > 0)


def softmax_weights(
    q: Queries,
    k: SharedKeys,
    *,
    mask: Mask,
    scale: float | None,
    soft_cap: float | None = None,
    bias: Bias | None = None,
    window: int | None = None,
    exclude_self: bool = False,
) -> Float[Tensor, "B H T S"]:
    """The weights that `softmax_attention` applies, before dropout; rows without a key are zero."""
    T, S = q.shape[2], k.shape[2]
    rows, cols = slice(0, T), slice(0, S)
    found = scores(q, grouped(k, q.shape[1]), scale)
    found = found if soft_cap is None else capped(found, soft_cap)
    found = found if bias is None else found + bias(rows, cols)
    allowed = allowed_pairs(mask, T, S, rows, cols, exclude_self, window, q)
    return masked_softmax(found, allowed).type_as(q)


def capped(scores: Float[Tensor, "*b T S"], c: float) -> Float[Tensor, "*b T S"]:
    """c tanh(z / c) (Gemma 2, arXiv 2408.00118)."""
    return c * (scores / c).tanh()


def behind_sink(
    q: Queries,
    k: SharedKeys,
    v: SharedValues,
    sinks: Float[Tensor, "H"],
    mask: Mask,
    how: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor, Mask, dict[str, Any]]:
    """q, k, v, mask, and `how` with its scale and bias, with one more key in front: value zero, and the score `sinks` in a channel of its own.

    So each kernel that takes keys takes sinks. In causal order a query is put in front, too, so that the order alone is the mask.
    """
    scale, bias = how["scale"], how.get("bias")
    scale = q.shape[3] ** -0.5 if scale is None else scale
    if abs(scale) < 1:  # sinks / scale might be beyond q's type
        q, scale = q * scale, 1.0
    logit = (sinks / scale).type_as(q)[:, None, None].expand(*q.shape[:3], 1)
    q = torch.cat([q, logit], -1)
    first = upto(k.shape[2] + 1, k) == 0
    if _only_causal(mask) and q.shape[2] == k.shape[2] and bias is None:
        q = F.pad(q, (0, 0, 1, 0))
    channel = first[:, None].type_as(k).expand(*k.shape[:2], -1, 1)
    k = torch.cat([F.pad(k, (0, 0, 1, 0)), channel], -1)
    v = F.pad(v, (0, 0, 1, 0))
    valid, pairwise = (
        None if z is None else F.pad(z, (1, 0), value=True) for z in (mask.valid, mask.pairwise)
    )
    shift = None if mask.shift is None else mask.shift + 1
    mask = replace(mask, valid=valid, pairwise=pairwise, global_tokens=None, shift=shift)

    def behind(rows: slice, cols: slice) -> Tensor:
        assert bias is not None
        z = bias(rows, slice(max(cols.start - 1, 0), cols.stop - 1))
        return z if cols.start else F.pad(z, (1, 0))

    return q, k, v, mask, how | {"scale": scale, "bias": bias and behind}


def allowed_pairs(
    mask: Mask,
    T: int,
    S: int,
    rows: slice,
    cols: slice,
    exclude_self: bool,
    window: int | None,
    like: Tensor,
) -> Bool[Tensor, "b h t s"]:
    """Allowed pairs of these queries and keys; `exclude_self` needs all keys that they may see."""
    allowed = mask.dense(T, S, device=like.device, rows=rows, cols=cols)
    key = upto(S, like)[cols]
    if window is not None and mask.causal:
        last = mask.last_key(T, S, like.device)
        allowed = allowed & (key > last[:, None, rows, None] - window)
    if exclude_self:
        oneself = upto(T, like)[rows, None] == key
        others = allowed & ~oneself
        allowed = torch.where(others.any(-1, keepdim=True), others, allowed & oneself)
    return allowed


def _only_causal(mask: Mask) -> bool:
    """True if the order alone decides what a valid query sees: where valid tokens come first, no other key precedes it."""
    free = mask.valid is None or mask.compact
    return mask.causal and free and mask.pairwise is None and mask.shift is None


def _given(mask: Mask) -> Bool[Tensor, "b h t S"] | None:
    """The pairs that a mask without an order allows; None: all."""
    if mask.valid is None:
        return mask.pairwise
    valid = mask.valid[:, None, None]
    return valid if mask.pairwise is None else mask.pairwise & valid
