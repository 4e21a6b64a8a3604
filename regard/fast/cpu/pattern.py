"""Patterns (see `functional.pattern`), one tile of queries after the other through torch's fused kernel, with a backward by hand.

Terms that need other tiles are merged by the logarithm of each row's sum of exponentials. The backward computes each tile's weights again
from the final sum: nothing of size [T S] is stored.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from operator import and_
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core import Keys, Mask, Mixed, Queries
from regard.fast.cpu.tiles import EVEN, Tile, tiles, window_tiles
from regard.functional.pattern import beside
from regard.functional.patterns import Pattern
from regard.functional.rows import LOG2_E, Form, exp_, take_each, wide_type

TILE = 64
"""Queries of a tile."""


class Call(NamedTuple):
    tiles: Callable[[], Iterable[Tile]]
    mask: Mask
    marks: Bool[Tensor, "B T"] | None  # keys that exist, and come not before the others
    scale: float
    even: bool = True  # keys are evenly spaced in all tiles
    merged: bool = False  # some queries are in several tiles
    at: Int[Tensor, "B E"] | None = None  # of a `Prefix`, and present
    present: Bool[Tensor, "B E"] | None = None


def attend(q, k, v, *first: Tensor, pattern: Pattern, mask: Mask, scale=None, form: Form) -> Mixed:
    H, T, K = q.shape[1:]
    others = None if mask.global_tokens is None else ~mask.global_tokens
    given = [z for z in (mask.valid, others) if z is not None]
    marks = reduce(and_, given) if given else None
    each = partial(tiles, pattern, mask.causal, H, T, form.tile or TILE)
    even = all(isinstance(term, EVEN) for term in pattern.terms)
    merged = len(pattern.terms) > 1
    scale = K**-0.5 if scale is None else scale
    return _tiled(Call(each, mask, marks, scale, even, merged, *first[2:]), q, k, v, *first[:2])


def window(q, k, v, *, window: int, dilation: int, mask: Mask, form: Form) -> Tensor:
    H, T, K = q.shape[1:]
    each = partial(window_tiles, window, dilation, mask.causal, H, T, form.tile or TILE)
    return _tiled(Call(each, mask, mask.valid, K**-0.5), q, k, v)


def _tiled(call: Call, q, k, v, first_k=None, first_v=None) -> Mixed:
    K, V = q.shape[3], v.shape[3]
    sides = [q, k, v, first_k, first_v]
    # The kernel reads the channels of a token as neighbours, whatever their stride.
    sides = [z if z is None or z.stride(3) == 1 else z.contiguous() for z in sides]
    if K != V:  # the kernel has one width
        sides = [z if z is None else F.pad(z, (0, max(K, V) - z.shape[3])) for z in sides]
    return _Tiles.apply(call, *sides)[..., :V]


def _take(z: Keys, tile: Tile, first: Tensor | None) -> Tensor:
    """The tile's rows of z, those of `first` before them."""
    parts = [] if first is None or not tile.first else [first]
    for at in tile.keys:
        if isinstance(at, slice):
            parts.append(z[:, :, at])
        else:
            parts.append(take_each(z, at.clamp_min(0).expand(len(z), -1, -1)))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _add(dz: Keys, tile: Tile, dfirst: Tensor | None, part: Tensor) -> None:
    """`part` to the rows of dz, and of dfirst, that `_take` took."""
    if dfirst is not None and tile.first:
        dfirst += part[:, :, : dfirst.shape[2]]
        part = part[:, :, dfirst.shape[2] :]
    H, S = dz.shape[1:3]
    for at, some in zip(tile.keys, part.split(tile.sizes, 2), strict=True):
        if isinstance(at, slice):
            dz[:, :, at] += some
        else:
            index = (S * torch.arange(H)[:, None] + at.clamp_min(0)).flatten()
            for one, rows in zip(dz.flatten(1, 2), some.flatten(1, 2), strict=True):
                one.index_add_(0, index, rows.type_as(dz))


def _restricted(call: Call, tile: Tile, H: int, T: int) -> Tensor | None:
    """The tile's bias under the tensors of the mask."""
    mask = call.mask
    given = None if mask.pairwise is None else mask.pairwise[:, :, tile.rows]
    bias = tile.bias
    there = None
    if call.marks is not None:
        there = _take(call.marks[:, None, :, None].expand(-1, H, -1, -1), tile, None).mT
        there = None if there.all() else there
    if given is not None:
        pairs = _take(given.mT.expand(-1, H, -1, -1), tile, None).mT
        there = pairs if there is None else there & pairs
    if there is not None:
        bias = (torch.zeros(()) if bias is None else bias).masked_fill(~there, -math.inf)
    if call.at is None or call.present is None or not tile.first:
        return bias
    at, seen = (z[:, None, None] for z in (call.at, call.present))
    if mask.causal:
        seen = seen & (at <= torch.arange(T)[tile.rows, None])
    if given is not None:
        b = max(len(at), len(given))
        pairs = given.expand(b, -1, -1, -1)
        seen = seen & pairs.gather(3, at.clamp_min(0).expand(b, *pairs.shape[1:3], -1))
    own = torch.zeros(()).masked_fill(~(seen | (at < 0)), -math.inf)
    return beside(own, torch.zeros(sum(tile.sizes)) if bias is None else bias)


def _each(call: Call, q: Queries) -> Iterator[tuple[Tile, Tensor | None]]:
    for tile in call.tiles():
        bias = _restricted(call, tile, *q.shape[1:3])
        yield tile, None if bias is None else bias.type_as(q)


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call: Call, q, k, v, first_k, first_v):
        if not call.even:
            k, v = k.contiguous(), v.contiguous()  # rows are named by an index
        y = torch.empty_like(q, dtype=wide_type(q) if call.merged else q.dtype)
        total = q.new_empty(q.shape[:3], dtype=wide_type(q))
        for tile, bias in _each(call, q):
            at = (slice(None), slice(None), tile.rows)
            keys = _take(k, tile, first_k)
            values = _take(v, tile, first_v)
            part, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q[at], keys, values, 0.0, False, attn_mask=bias, scale=call.scale
            )
            if bias is not None:
                lse = lse.masked_fill(bias.amax(-1) == -math.inf, -math.inf)
            if tile.first:
                y[at], total[at] = part, lse
                continue
            both = torch.logaddexp(total[at], lse)
            some = both.masked_fill(both == -math.inf, 0)
            y[at] *= exp_(total[at] - some)[..., None]
            y[at] += part.mul_(exp_(lse - some)[..., None])
            total[at] = both
        y = y.type_as(q)
        ctx.save_for_backward(q, k, v, first_k, first_v, y, total)
        ctx.call = call
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Five products in cache: the fused backward fills its results with zeros first, and takes a fifth more time."""
        *sides, y, total = ctx.saved_tensors
        q, k, v, first_k, first_v = sides
        scale, wide = ctx.call.scale, total.dtype
        total = LOG2_E * total.masked_fill(total == -math.inf, 0)
        delta = (dy * y).sum(-1, dtype=wide)
        grads: list = [None if z is None else torch.zeros_like(z, dtype=wide) for z in sides]
        dq, dk, dv, dfirst_k, dfirst_v = grads
        for tile, bias in _each(ctx.call, q):
            at = (slice(None), slice(None), tile.rows)
            keys = _take(k, tile, first_k)
            values = _take(v, tile, first_v)
            w = (q[at].to(wide) @ keys.to(wide).mT).mul_(scale * LOG2_E)
            w = w if bias is None else w.add_(bias)
            w = w.sub_(total[at][..., None]).exp2_()
            _add(dv, tile, dfirst_v, w.type_as(dy).mT @ dy[at])
            d = (dy[at] @ values.mT).to(wide).sub_(delta[at][..., None])
            d = d.mul_(w).mul_(scale).type_as(q)
            dq[at] += d @ keys
            _add(dk, tile, dfirst_k, d.mT @ q[at])
        pairs = zip(grads, sides, strict=True)
        return None, *(None if dz is None else dz.type_as(z) for dz, z in pairs)


def unfit(q, k, v, *, mask: Mask, form: Form, **options) -> str | None:
    """The reason why a window is not for this kernel, or None."""
    if options.keys() & {"soft_cap", "sinks"}:
        return "it neither caps scores nor has sinks"
    if q.shape[1:3] != k.shape[1:3]:
        return "it is for as many keys as queries, on one axis"
    return "any token may be global" if mask.global_tokens is not None else unlike(q, k, v)


def unlike(q, k, v, *first: Tensor, **options) -> str | None:
    return None if q.dtype == k.dtype == v.dtype else "its tensors are of several types"
