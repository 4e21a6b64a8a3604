"""Softmax attention over a pattern of pairs, at the cost of its pairs.

The pattern is cut into tiles (see `plan`), whose parts are merged by their log-sum-exp (Child et al. 2019,
arXiv 1904.10509; Beltagy et al. 2020, arXiv 2004.05150).
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from regard.core.compaction import compaction
from regard.core.errors import ShapeError
from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import by_tiles
from regard.functional.shared.implementation import Cut, Impl, choose
from regard.functional.shared.recompute import twice_differentiable
from regard.functional.softmax.dense import masked_softmax, softmax_attention
from regard.functional.sparse.flex import flex_pattern_attention
from regard.functional.sparse.patterns import Pattern, PerHead, picture
from regard.functional.sparse.plan import Prefix, plan_tiles
from regard.functional.sparse.tiles import tile_attention

KeysAndValues = tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]]


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
    prefix: KeysAndValues | None = None,
    max_global: int | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs of the pattern that the mask allows.

    prefix: keys and values that every query sees besides. max_global: the most global tokens that a row has. Without
    it any token may be one, and where `mask.global_tokens` is given every query is compared with every key: time grows
    as T^2, memory does not. impl: see `shared.implementation`.
    Raises ShapeError where a pattern for each head meets another number of heads.
    """
    _check_one_axis(q, k)
    H, T = q.shape[1:3]
    if isinstance(pattern, PerHead) and len(pattern.heads) != H:
        raise ShapeError(f"a pattern for {len(pattern.heads)} heads meets queries of {H}")
    cut = choose("pattern", impl, q, mask, plain=prefix is None)

    def fast(q: Tensor, k: Tensor, v: Tensor, *first: Tensor) -> Float[Tensor, "B H T V"]:
        if cut.name == "flex":
            return flex_pattern_attention(q, k, v, pattern=pattern, mask=mask, scale=scale)
        before = (first[0], first[1]) if first else None
        return _by_plan(q, k, v, pattern, mask, scale, before, max_global, cut)

    def plain(q: Tensor, k: Tensor, v: Tensor, *first: Tensor) -> Float[Tensor, "B H T V"]:
        first_k, first_v = first or (None, v[:, :, :0])

        def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
            found = _weights(q, k, pattern, mask, scale, first_k, rows)
            return found @ torch.cat([first_v, v], dim=2)

        return by_tiles(some, T, cut.tile, q, k, v)

    return twice_differentiable(fast, plain, q, k, v, *(prefix or ()), inlined=True)


def _by_plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    mask: Mask,
    scale: float | None,
    prefix: KeysAndValues | None,
    max_global: int | None,
    cut: Cut,
) -> Float[Tensor, "B H T V"]:
    """In the tiles of the pattern's plan, with a backward by hand."""
    H, T = q.shape[1:3]
    E = 0 if prefix is None else prefix[0].shape[2]
    before, first, some = prefix, Prefix(E) if E else None, None
    if mask.global_tokens is not None and max_global is not None:
        at, present = some = global_places(mask.global_tokens, max_global)
        before = _joined(prefix, (pick(k, at), pick(v, at)))
        at, present = F.pad(at, (E, 0), value=-1), F.pad(present, (E, 0), value=True)
        first = Prefix(at.shape[1], at, present)
    # The fused kernel of the forward is as fast with few rows, the products of the backward are not.
    plan = partial(plan_tiles, pattern, mask, H, T, q.device, cut, prefix=first)
    y = tile_attention(
        q,
        k,
        v,
        plan=plan(rows=max(1, cut.tile // 4)),
        back=partial(plan, rows=max(1, cut.tile // 2)),
        cut=cut,
        prefix=before,
        scale=scale,
    )
    if some is None:
        return y
    return replace_rows(y, q, k, v, mask, *some, scale=scale, prefix=prefix)


def weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
    prefix: Float[Tensor, "B H E K"] | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weights that `attend` applies, prefix keys first; rows without a key are zero."""
    _check_one_axis(q, k)
    return _weights(q, k, pattern, mask, scale, prefix, slice(0, q.shape[2]))


def _weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    pattern: Pattern,
    mask: Mask,
    scale: float | None,
    prefix: Float[Tensor, "B H E K"] | None,
    rows: slice,
) -> Float[Tensor, "B H t S"]:
    """Those of the queries `rows`."""
    T = q.shape[2]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    seen = picture(pattern, T, device=q.device, rows=rows)
    allowed = mask.dense(T, T, pattern=seen, rows=rows)
    if prefix is not None:
        allowed = F.pad(allowed, (prefix.shape[2], 0), value=True)
        k = torch.cat([prefix, k], dim=2)
    return masked_softmax(scale * q[:, :, rows] @ k.transpose(-1, -2), allowed)


def global_places(
    global_tokens: Bool[Tensor, "B T"], count: int
) -> tuple[Int[Tensor, "B M"], Bool[Tensor, "B M"]]:
    """Positions of the first `count` global tokens of every row, and which of them exist."""
    order = compaction(global_tokens)
    return order.source[:, :count], order.valid[:, :count]


def pick(z: Shaped[Tensor, "B H T K"], at: Int[Tensor, "B M"]) -> Shaped[Tensor, "B H M K"]:
    return z.gather(2, at[:, None, :, None].expand(-1, z.shape[1], -1, z.shape[3]))


def replace_rows(
    y: Float[Tensor, "B H T V"],
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    mask: Mask,
    at: Int[Tensor, "B M"],
    present: Bool[Tensor, "B M"],
    *,
    scale: float | None = None,
    prefix: KeysAndValues | None = None,
) -> Float[Tensor, "B H T V"]:
    """y, with the rows of global tokens computed anew over all keys that the mask allows."""
    T = q.shape[2]
    allowed = present[:, None, :, None].expand(-1, 1, -1, T)
    if mask.causal:
        allowed = allowed & (torch.arange(T, device=q.device) <= at[:, None, :, None])
    if mask.valid is not None:
        allowed = allowed & mask.valid[:, None, None, :]
    if mask.pairwise is not None:
        allowed = allowed & pick(mask.pairwise.expand(q.shape[0], -1, -1, -1), at)
    if prefix is not None:
        k, v = _joined(prefix, (k, v))
        allowed = F.pad(allowed, (prefix[0].shape[2], 0), value=True)
    rows = softmax_attention(pick(q, at), k, v, mask=Mask(pairwise=allowed), scale=scale)
    rows = torch.where(present[:, None, :, None], rows, pick(y, at))
    return y.scatter(2, at[:, None, :, None].expand_as(rows), rows)


def _joined(first: KeysAndValues | None, second: KeysAndValues) -> KeysAndValues:
    if first is None:
        return second
    return torch.cat([first[0], second[0]], dim=2), torch.cat([first[1], second[1]], dim=2)


def _check_one_axis(q: Tensor, k: Tensor) -> None:
    if q.shape[2] != k.shape[2]:
        raise ShapeError(
            f"a pattern needs queries and keys on one axis, got {q.shape[2]} and {k.shape[2]} of them"
        )
