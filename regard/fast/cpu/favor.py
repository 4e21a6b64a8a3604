"""FAVOR+ (see `functional.features`) in pieces of time, whose features stay in cache.

The plain form holds features of all tokens several times over: past some 32 MB they are fresh pages at every call, which costs more than
the sums. Here they are computed again in the backward where they are large: q, k, v, y and the sums between the pieces are kept, and nothing
else. Exponentials and sums of chunks have derivatives by hand, since autograd takes several passes more over the features.

There is one c for each piece of keys, the largest so far, by which the sums before are divided again, so that pairs are one product. In causal order a
piece is halved where c moves by more than RANGE within it: what an early query sees would leave the range of the numbers.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core import Mask, Queries
from regard.fast.cpu.sums import chunk_sums, unfit_sums
from regard.functional.features import EPS, Favor, Projection, kernel_of, lowest, present, projected
from regard.functional.linear import CHUNK, floored
from regard.functional.rows import Form, recomputed, wide_type, with_ones

TILE = 512
"""Tokens of a piece."""
ROOM, KEPT = 1 << 22, 1 << 25
"""Bytes of the features that the rows of a piece may have, and of those of all keys that are kept for the backward."""
RANGE = 40.0


def attend(q, k, v, w, *, features: Favor, stabiliser: str, mask: Mask, form: Form) -> Tensor:
    """Some rows of the batch after the other, as many as the room allows."""
    tile = form.tile or TILE
    token = k.element_size() * k.shape[1] * w.shape[1]
    again = partial(recomputed, when=token * k[:, 0, :, 0].numel() > (form.room or KEPT))
    some = max(1, (form.room or ROOM) // (token * tile))
    rows = [z.split(some) for z in (q, k, v)]
    valid = [None] * len(rows[0]) if mask.valid is None else mask.valid.split(some)
    made = []
    for here, *of_rows in zip(valid, *rows, strict=True):
        queries, keys, values = (_cut(z, tile) for z in of_rows)
        times = [None] * len(keys) if here is None else here.split(tile, 1)
        S, c = _begun(keys[0], values[0], w, features)
        if mask.causal:
            pieces = queries, keys, values, times
            y = _causal(again, pieces, S, c, w, features, form.chunk or CHUNK)
        else:
            y = _unordered(again, queries, (keys, values, times), S, c, w, features)
        made.append(torch.cat([part.transpose(1, 2) for part in y], 1).transpose(1, 2))
    return torch.cat(made).type_as(v)


def unfit(q, k, v, w, *, features, stabiliser, mask: Mask, form: Form) -> str | None:
    if kernel_of(features) is not None:
        return "its features are no exponentials"
    if stabiliser == "published":
        return "the published stabiliser is one maximum over all keys"
    return unfit_sums(q, k, v, w.shape[1], mask, form)


def _cut(z: Queries, tile: int) -> list[Tensor]:
    """Pieces of time. Neighbours in memory are the heads of a token, as in the layers around: so nothing is copied between them."""
    return [part.transpose(1, 2) for part in z.transpose(1, 2).split(tile, 1)]


def _causal(again, pieces, S, c, w, features: Favor, chunk: int) -> list[Tensor]:
    def step(q, k, v, valid, S, c, w):
        phi, decay, new, rise = _keys(k, w, c, features, valid, causal=True)
        if q.shape[2] > 1 and bool((rise > RANGE).any()):
            half, y = (q.shape[2] + 1) // 2, []
            times = (None, None) if valid is None else valid.split(half, 1)
            parts = zip(*(z.split(half, 2) for z in (q, k, v)), times, strict=True)
            for queries, keys, values, now in parts:
                more, S, c = step(queries, keys, values, now, S, c, w)
                y.append(more)
            return torch.cat(y, 2), S, c
        a = _queries(q, w, features, causal=True)
        sums, S = chunk_sums(a, phi, with_ones(v), S * decay, chunk)
        sums, total = (sums * rise.exp()[..., None]).split([v.shape[3], 1], -1)
        return sums / floored(total), S, new

    y = []
    for q, k, v, valid in zip(*pieces, strict=True):
        more, S, c = again(step, q, k, v, valid, S, c, w)
        y.append(more)
    return y


def _unordered(again, queries, pieces, S, c, w, features: Favor) -> list[Tensor]:
    """1e-6 is added to all features, by sums of the values and of the features' sums."""

    def add(k, v, valid, S, c, w):
        phi, decay, c, _ = _keys(k, w, c, features, valid, causal=False)
        return S * decay + (with_ones(v).mT @ phi).mT, c

    def read(q, S, w):
        return _queries(q, w, features, causal=False) @ S

    z = torch.zeros_like(S[:, :, :1])
    for k, v, valid in zip(*pieces, strict=True):
        S, c = again(add, k, v, valid, S, c, w)
        z = z + present(with_ones(v), valid).sum(2, keepdim=True)
    S = (S + EPS * z).type_as(queries[0])
    least, y = EPS * S.sum(2, keepdim=True), []
    for q in queries:
        sums, total = (again(read, q, S, w) + least).split([S.shape[3] - 1, 1], -1)
        y.append(sums / floored(total))
    return y


def _begun(k: Tensor, v: Tensor, w: Tensor, features: Favor) -> tuple[Tensor, Tensor]:
    """S and c before the first key."""
    M = w.shape[1] * (1 + (features == "hyperbolic"))
    wide = wide_type(v)
    S = v.new_zeros(*v.shape[:2], M, v.shape[3] + 1, dtype=wide)
    return S, torch.full_like(S[:, :, 0, :1], lowest(wide))


def _queries(q: Tensor, w: Tensor, features: Favor, *, causal: bool) -> Float[Tensor, "B H t M"]:
    wx, _ = projected(q, w, features)
    return _Exponential.apply(wx, wx.detach().amax(-1), not causal).type_as(q)


def _keys(
    k: Float[Tensor, "B H t K"],
    w: Projection,
    c: Float[Tensor, "B H 1"],
    features: Favor,
    valid: Bool[Tensor, "B t"] | None,
    *,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """phi [B H t M]; what the sums before are multiplied by; c; and the log of what divides each query's sums [B H t]."""
    wx, half = projected(k, w, features)
    peak, none = wx.detach().amax(-1), lowest(wx.dtype)
    top = peak - half.detach()
    top = top if valid is None else top.masked_fill(~valid[:, None], none)
    new, at = top.max(-1, keepdim=True)
    if not causal:  # c has the gradient of its token
        token = k.gather(2, at[..., None].expand(-1, -1, -1, k.shape[3]))
        own, size = projected(token, w, features)
        new = torch.where(new <= none, new, own.amax(-1) - size)
    new = torch.maximum(c, new)
    level = peak + (new - top) + (half - half.detach())  # |x|^2 / 2 + c, as in `favor_keys`
    level = level if valid is None else level.masked_fill(~valid[:, None], torch.inf)
    phi = _Exponential.apply(wx, level, False).type_as(k)
    so_far = torch.maximum(c, top).cummax(-1).values
    rise = (new - so_far).masked_fill(so_far <= none, 0.0)
    return phi, (c - new).exp()[..., None], new, rise


class _Exponential(torch.autograd.Function):
    """exp(wx - level), in the place of wx. peak: the level is the largest wx, whose gradient is found here."""

    @staticmethod
    def forward(ctx, wx: Float[Tensor, "B H t M"], level: Float[Tensor, "B H t"], peak: bool):
        phi = wx.sub_(level[..., None]).exp_()
        ctx.mark_dirty(wx)
        ctx.save_for_backward(phi)
        ctx.peak = peak
        return phi

    @staticmethod
    def backward(ctx, dphi):
        (phi,) = ctx.saved_tensors
        dwx = dphi.mul_(phi)  # a product's gradient, which nobody else reads
        total = dwx.sum(-1, keepdim=True)
        if ctx.peak:
            dwx.scatter_add_(-1, phi.argmax(-1, keepdim=True), -total)
        return dwx, -total[..., 0], None
