"""Kernel attention (see `functional.linear`) in pieces of time, whose features stay in cache.

The plain form holds features of all tokens several times over: past some 32 MB they are fresh pages at every call, which costs more than
the sums. Here they are computed again in the backward where they are large: q, k, v, y and the sums between the pieces are kept, and nothing
else. Exponentials and sums of chunks have derivatives by hand, since autograd takes several passes more over the features.

FAVOR+: one c for each piece of keys, the largest so far, by which the sums before are divided again, so that pairs are one product. In causal order a
piece is halved where c moves by more than RANGE within it: what an early query sees would leave the range of the numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.features import (
    EPS,
    FEATURE_MAPS,
    Favor,
    FeatureMap,
    elu_plus_one,
    favor_keys,
    favor_queries,
    kernel_of,
    lowest,
    present,
    projected,
)
from regard.functional.linear import CHUNK, Denominator, floored
from regard.functional.rows import Form, fitted, in_chunks, recomputed, wide_type

TILE = 512
"""Tokens of a piece."""
LEAST, ROOM, KEPT = 1 << 21, 1 << 22, 1 << 25
"""Bytes of the features of all keys from which pieces are faster, those that the rows of a piece may have, and those that are kept for the backward."""
RANGE = 40.0


class Keys(NamedTuple):
    """phi of a piece of keys; what the sums before it are multiplied by; what later pieces need; and the log of what divides each query's sums."""

    phi: Float[Tensor, "B H t M"]
    decay: Float[Tensor, "B H 1 1"] | None = None
    c: Float[Tensor, "B H 1"] | None = None
    rise: Float[Tensor, "B H t"] | None = None


class Kernel(NamedTuple):
    """queries(q, *weights) -> phi. keys(k, valid, c, *weights) -> Keys. floor: what is added to all features, where there is no order."""

    queries: Callable[..., Tensor]
    keys: Callable[..., Keys]
    denominator: Denominator
    floor: float = 0.0


def linear(q, k, v, *, feature_map, denominator, mask: Mask = OPEN, form: Form) -> Tensor:
    by_hand = feature_map in (elu_plus_one, FEATURE_MAPS["elu_plus_one"])
    phi = _EluPlusOne.apply if by_hand else feature_map

    def keys(k, valid, c) -> Keys:
        return Keys(present(phi(k), valid))

    return in_pieces(Kernel(phi, keys, denominator), mask, form, q, k, v)


def favor(q, k, v, w, *, features, stabiliser, mask: Mask = OPEN, form: Form) -> Tensor:
    how = {"features": features, "causal": mask.causal}
    kernel = Kernel(partial(_favor_queries, **how), partial(_favor_keys, **how), floored)
    if kernel_of(features) is None and not mask.causal:
        kernel = kernel._replace(floor=EPS)
    return in_pieces(kernel, mask, form, q, k, v, w)


def _favor_queries(q: Tensor, w: Tensor, features: Favor, causal: bool) -> Tensor:
    if kernel_of(features) is not None:
        return favor_queries(q, w, features, causal=causal)
    wx, _ = projected(q, w, features)
    return _Exponential.apply(wx, wx.detach().amax(-1), not causal).to(q.dtype)


def _favor_keys(
    k: Tensor, valid: Tensor | None, c: Tensor | None, w: Tensor, features: Favor, causal: bool
) -> Keys:
    if kernel_of(features) is not None:
        return Keys(favor_keys(k, w, features, causal=causal, valid=valid).phi)
    wx, half = projected(k, w, features)
    peak, absent = wx.detach().amax(-1), None if valid is None else ~valid[:, None]
    top = peak - half.detach()
    top = top if absent is None else top.masked_fill(absent, lowest(top.dtype))
    new, at = top.max(-1, keepdim=True)
    if not causal:  # c has the gradient of its token
        token = k.gather(2, at[..., None].expand(-1, -1, -1, k.shape[3]))
        own, size = projected(token, w, features)
        new = torch.where(new <= lowest(new.dtype), new, own.amax(-1) - size)
    new = new if c is None else torch.maximum(c, new)
    level = peak + (new - top) + (half - half.detach())  # |x|^2 / 2 + c, as in `favor_keys`
    level = level if absent is None else level.masked_fill(absent, torch.inf)
    phi = _Exponential.apply(wx, level, False).to(k.dtype)
    decay, rise = None if c is None else (c - new).exp()[..., None], None
    if causal:
        so_far = (top if c is None else torch.maximum(c, top)).cummax(-1).values
        rise = (new - so_far).masked_fill(so_far <= lowest(top.dtype), 0.0)
    return Keys(phi, decay, new, rise)


def in_pieces(
    kernel: Kernel,
    mask: Mask,
    form: Form,
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *weights: Tensor,
) -> Float[Tensor, "B H T V"]:
    """Some rows of the batch after the other, as many as the room allows."""
    tile, width = form.tile or TILE, kernel.queries(q[:1, :, :1], *weights).shape[-1]
    token = k.element_size() * k.shape[1] * width
    again = partial(recomputed, when=token * k[:, 0, :, 0].numel() > (form.room or KEPT))
    some = min(len(q), max(1, (form.room or ROOM) // (token * tile)))
    valid, made = [None] * len(q) if mask.valid is None else mask.valid.split(some), []
    rows = (z.split(some) if some < len(z) else [z] for z in (q, k, v))
    for here, q, k, v in zip(valid, *rows, strict=False):
        S = v.new_zeros(*v.shape[:2], width, v.shape[3] + 1, dtype=wide_type(v))
        times = [None] * k.shape[2] if here is None else here.split(tile, 1)
        keys = zip(times, _cut(k, tile), _cut(v, tile), strict=False)
        if mask.causal:
            y = _causal(kernel, again, form.chunk or CHUNK, S, _cut(q, tile), keys, weights)
        else:
            y = _unordered(kernel, again, S, _cut(q, tile), keys, weights)
        made.append(y)
    return made[0] if len(made) == 1 else torch.cat(made)


def _causal(kernel: Kernel, again, chunk: int, S: Tensor, queries, keys, weights) -> Tensor:
    def step(valid, q, k, v, S, c, *weights):
        keys, t = kernel.keys(k, valid, c, *weights), q.shape[2]
        if keys.rise is not None and t > 1 and bool((keys.rise > RANGE).any()):
            halves, made = [t - t // 2, t // 2], []
            valid = [None, None] if valid is None else valid.split(halves, 1)
            for now, *part in zip(valid, *(z.split(halves, 2) for z in (q, k, v)), strict=True):
                *sums, S, c = step(now, *part, S, c, *weights)
                made.append(sums)
            return *(torch.cat(z, 2) for z in zip(*made, strict=True)), S, c
        S = S if keys.decay is None else S * keys.decay
        sums, S = chunk_sums(
            kernel.queries(q, *weights), keys.phi, F.pad(v, (0, 1), value=1.0), S, chunk
        )
        return sums, keys.rise, S, keys.c

    c, made = None, []
    for q, (valid, k, v) in zip(queries, keys, strict=False):
        sums, rise, S, c = again(step, valid, q, k, v, S, c, *weights)
        made.append(_means(kernel, sums if rise is None else sums * rise.exp()[..., None]))
    return _joined(made).to(v.dtype)


def _unordered(kernel: Kernel, again, S: Tensor, queries, keys, weights) -> Tensor:
    def add(valid, k, v, S, c, *weights):
        keys = kernel.keys(k, valid, c, *weights)
        S = S if keys.decay is None else S * keys.decay
        return S + (F.pad(v, (0, 1), value=1.0).mT @ keys.phi).mT, keys.c

    def read(q, S, *weights):
        return kernel.queries(q, *weights) @ S

    c, z = None, torch.zeros_like(S[:, :, :1])
    for valid, k, v in keys:
        S, c = again(add, valid, k, v, S, c, *weights)
        if kernel.floor:
            z = z + present(F.pad(v, (0, 1), value=1.0), valid).sum(2, keepdim=True)
    S = (S + kernel.floor * z).to(v.dtype)
    least = kernel.floor * S.sum(2, keepdim=True)
    return _joined([_means(kernel, again(read, q, S, *weights) + least) for q in queries])


def _means(kernel: Kernel, sums: Float[Tensor, "B H t V+1"]) -> Float[Tensor, "B H t V"]:
    y, total = sums.split([sums.shape[3] - 1, 1], -1)
    return y / kernel.denominator(total)


# Neighbours in memory are the heads of a token, as in the layers before and after: so nothing is copied between them.


def _cut(z: Float[Tensor, "B H T K"], tile: int) -> list[Tensor]:
    return [part.transpose(1, 2) for part in z.transpose(1, 2).split(tile, 1)]


def _joined(parts: list[Tensor]) -> Float[Tensor, "B H T V"]:
    return torch.cat([part.transpose(1, 2) for part in parts], 1).transpose(1, 2)


def chunk_sums(
    a: Float[Tensor, "B H t M"],
    e: Float[Tensor, "B H t M"],
    v: Float[Tensor, "B H t V"],
    S: Float[Tensor, "B H M V"],
    chunk: int,
) -> tuple[Float[Tensor, "B H t V"], Float[Tensor, "B H M V"]]:
    """Sums of the values up to each query, and S after them, from that before."""
    t = a.shape[2]
    a, e, v = (in_chunks(z, fitted(chunk, t)) for z in (a, e, v))
    # (v^T e)^T, not e^T v: so gradients of features have rows of features.
    before, S = _States.apply(S, (v.mT @ e).mT)
    sums = _Pairs.apply(a, e) @ v + a @ before
    return sums.flatten(2, 3)[:, :, :t], S


class _Pairs(torch.autograd.Function):
    """The products of each query with the keys up to it."""

    @staticmethod
    def forward(ctx, a: Float[Tensor, "*b C M"], e: Float[Tensor, "*b C M"]):
        ctx.save_for_backward(a, e)
        return (a @ e.mT).tril_()

    @staticmethod
    def backward(ctx, pairs):
        a, e = ctx.saved_tensors
        pairs = pairs.tril()
        return pairs @ e, pairs.mT @ a


class _States(torch.autograd.Function):
    """S before each chunk, and after the last."""

    @staticmethod
    def forward(ctx, S: Float[Tensor, "B H M V"], gain: Float[Tensor, "B H N M V"]):
        before, ctx.dtype = torch.empty_like(gain), gain.dtype
        for i, more in enumerate(gain.unbind(2)):
            before[:, :, i] = S
            S = S + more
        return before, S

    @staticmethod
    def backward(ctx, dbefore, dS):
        dgain = torch.empty_like(dbefore)
        for i in reversed(range(dbefore.shape[2])):
            dgain[:, :, i] = dS
            dS = dS + dbefore[:, :, i]
        return dS, dgain


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


class _EluPlusOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Float[Tensor, "B H t K"]):
        phi = x.clamp(max=0).exp_().add_(x.relu())
        ctx.save_for_backward(phi)
        return phi

    @staticmethod
    def backward(ctx, dphi):
        return ctx.saved_tensors[0].clamp(max=1) * dphi


def unfit_linear(q, k, v, *, feature_map, denominator, mask: Mask = OPEN, form: Form) -> str | None:
    if feature_map is not elu_plus_one and not isinstance(feature_map, FeatureMap):
        return "a feature map of one's own may hold parameters"
    return unfit(q, k, v, q.shape[-1], mask, form)


def unfit_favor(q, k, v, w, *, features, stabiliser, mask: Mask = OPEN, form: Form) -> str | None:
    if callable(features):
        return "a function of one's own may hold parameters"
    if stabiliser == "published":
        return "the published stabiliser is one maximum over all keys"
    return unfit(q, k, v, w.shape[1], mask, form)


def unfit(q: Tensor, k: Tensor, v: Tensor, width: int, mask: Mask, form: Form) -> str | None:
    """Why pieces cannot, or need not, serve."""
    if not (q.numel() and v.numel()):
        return "there is nothing to compute"
    if mask.causal and (mask.shift is not None or q.shape[2] != k.shape[2]):
        return "causal order is for as many keys as queries, on one axis"
    features = k.element_size() * width * k[..., 0].numel()
    if form.name == "auto" and features < (form.room or LEAST):
        return "the features fit into the cache, and the plain form is as fast"
    return None
