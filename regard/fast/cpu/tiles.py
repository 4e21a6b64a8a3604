"""Exact softmax attention over a plan of tiles: in each of them some queries see some keys.

Where the keys of a query are in several tiles, the parts of its softmax are merged by their log-sum-exp. Nothing of
size [T S] is stored; the backward recomputes each tile's weights from the final log-sum-exp, so that its cost follows
the plan too. Equal tiles at equal distances are one call, on views of q, k, v that overlap in memory.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.fast.cpu.blocks import tiles
from regard.functional.rows import LOG2_E, exp_, wide_type

TileKeys = range | tuple[range, ...] | Int[Tensor, "H s"]


class Tile(NamedTuple):
    rows: range  # queries
    cols: TileKeys  # each key once; -1 in a tensor: none
    part: int = 0  # tiles of one part share no query
    prefix: bool = False  # the keys are prefix keys


class TileMask(NamedTuple):
    """The mask of a tile: a bias of 0 and -inf, and the rows that see no key."""

    bias: Float[Tensor, "b h t s"]
    none: Bool[Tensor, "b h t"]

    @classmethod
    def of(cls, allowed: Bool[Tensor, "b h t s"], dtype: torch.dtype) -> "TileMask":
        bias = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        return cls(bias.masked_fill_(~allowed, -math.inf), ~allowed.any(-1))


class TileBatch(NamedTuple):
    """`repeats` tiles, each `shift` tokens behind the one before, with the same mask; None: all pairs are allowed.

    Where a tensor names the keys, it is that of all tiles [H repeats s], and their masks are [H repeats 1 s].
    """

    tile: Tile
    mask: Callable[[torch.dtype], TileMask | None]
    repeats: int = 1
    shift: int = 0


class HeadPlan(NamedTuple):
    """The tiles of some heads, part by part. `whole`: the first part holds every query."""

    heads: slice
    batches: list[TileBatch]
    whole: bool


TilePlan = list[HeadPlan]


def tile_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    plan: TilePlan,
    back: Callable[[], TilePlan],
    room: int,
    prefix: tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs that the plan allows; a query with no key in any tile gives zero.

    back: the same pairs, in the plan of the backward. room: bytes of temporaries held at once. prefix: the keys and values of prefix tiles.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _TileAttention.apply(q, k, v, *(prefix or (None, None)), plan, back, room, scale)


class _TileAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, prefix_k, prefix_v, plan, back, room, scale):
        batches = _batches(plan)
        gathered = any(isinstance(batch.tile.cols, Tensor) for _, batch in batches)
        k, v = (z.contiguous() if gathered or z.stride(-1) != 1 else z for z in (k, v))
        wide, most = wide_type(q), room // (4 * q.element_size())
        merging = any(batch.tile.part > 0 for _, batch in batches)
        y = _laid_out_like(q, v.shape[3], wide if merging else q.dtype)
        if not all(heads.whole for heads in plan):
            y.zero_()
        total = q.new_full(q.shape[:3], -math.inf, dtype=wide)
        for heads, batch in batches:
            mask, first = batch.mask(q.dtype), batch.tile.part == 0
            keys, values = (prefix_k, prefix_v) if batch.tile.prefix else (k, v)
            fit = max(1, most // (len(batch.tile.rows) * v.shape[3]))
            together = fit if _heads_adjoin(q) else max(1, fit // batch.repeats)
            for some in _views(batch, heads, q, fit, together):
                part, lse = attend(
                    some.rows(q),
                    some.keys(keys),
                    some.keys(values),
                    some.mask(mask),
                    scale,
                )
                merge(some.rows(y), some.rows(total), part, lse, first=first)
        y = y.to(q.dtype)
        ctx.save_for_backward(q, k, v, prefix_k, prefix_v, y, total)
        ctx.back, ctx.room, ctx.scale = back, room, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, prefix_k, prefix_v, y, total = ctx.saved_tensors
        total = total.masked_fill(total == -math.inf, 0)
        plan, wide = ctx.back(), total.dtype
        room = ctx.room // total.element_size()  # fewer and larger products are faster here
        dq = _laid_out_like(q, q.shape[3], wide)
        if not all(heads.whole for heads in plan):
            dq.zero_()
        dk, dv, prefix_dk, prefix_dv = (
            None if z is None else torch.zeros_like(z, dtype=wide)
            for z in (k, v, prefix_k, prefix_v)
        )
        for heads, batch in _batches(plan):
            mask, tile = batch.mask(q.dtype), batch.tile
            keys, values = (prefix_k, prefix_v) if tile.prefix else (k, v)
            dkeys, dvalues = (prefix_dk, prefix_dv) if tile.prefix else (dk, dv)
            fit = max(1, room // (len(tile.rows) * num_keys(tile.cols)))
            # Equal tiles of one head are equally far apart in memory: its products need no copies.
            for some in _views(batch, heads, q, fit, together=1):
                dq_part, dk_part, dv_part = attend_backward(
                    some.rows(dy),
                    some.rows(q),
                    some.keys(keys),
                    some.keys(values),
                    some.rows(y),
                    some.rows(total),
                    some.mask(mask),
                    ctx.scale,
                )
                here = some.rows(dq)
                assert dkeys is not None and dvalues is not None
                here.copy_(dq_part) if tile.part == 0 else here.add_(dq_part)
                some.add_to_keys(dkeys, dk_part)
                some.add_to_keys(dvalues, dv_part)
        of, found = (q, k, v, prefix_k, prefix_v), (dq, dk, dv, prefix_dk, prefix_dv)
        given = [None if dz is None else dz.to(z.dtype) for z, dz in zip(of, found, strict=True)]
        return (*given, None, None, None, None)


def _batches(plan: TilePlan) -> list[tuple[slice, TileBatch]]:
    return [(some.heads, batch) for some in plan for batch in some.batches]


def _heads_adjoin(q: Float[Tensor, "B H T K"]) -> bool:
    """True if the heads of a token are neighbours in memory, where a projection of all heads makes q."""
    return q.stride(1) < q.stride(2)


def _laid_out_like(
    q: Float[Tensor, "B H T K"], width: int, dtype: torch.dtype
) -> Float[Tensor, "B H T V"]:
    """An uninitialised tensor with the layout of q, so that heads which adjoin are merged without a copy."""
    B, H, T, _ = q.shape
    if _heads_adjoin(q):
        return q.new_empty(B, T, H, width, dtype=dtype).transpose(1, 2)
    return q.new_empty(B, H, T, width, dtype=dtype)


def merge(y: Tensor, total: Tensor, part: Tensor, lse: Tensor, *, first: bool) -> None:
    """Into y and total: the softmax over the keys of both. `part` is used up."""
    if first:
        y.copy_(part)
        total.copy_(lse)
        return
    both = torch.logaddexp(total, lse)
    some = both.masked_fill(both == -math.inf, 0)
    y.mul_(exp_(total - some)[..., None]).add_(part.mul_(exp_(lse - some)[..., None]))
    total.copy_(both)


def _views(
    batch: TileBatch, heads: slice, q: Float[Tensor, "B H T K"], fit: int, together: int
) -> Iterator["_Views"]:
    """All tiles of the batch, in as few calls as possible; in each at most `fit` tiles, counted once for every head.

    A call takes one tile of all examples, or equal tiles of one example and at most `together` heads.
    """
    B, every, count = q.shape[0], range(q.shape[1])[heads], batch.repeats
    many, alone = min(together, len(every)), max(1, fit // B)
    n = min(count, max(1, fit // many))
    calls = B * -(-len(every) // many) * -(-count // n)
    if count == 1 or calls > count * -(-len(every) // alone):
        examples, many, n = [slice(0, B)], alone, 1
    else:
        examples = list(tiles(B, 1))
    for b, h, t in product(examples, tiles(len(every), many), tiles(count, n)):
        yield _Views(batch, b, every[h], h, t)


class _Views(NamedTuple):
    """Tiles of a batch as one call sees them: one tile [b h t K] of b examples, or n equal ones [h n t K] of one."""

    batch: TileBatch
    examples: slice
    heads: range
    places: slice  # of these heads, among those of the plan
    tiles: slice

    def rows(self, z: Float[Tensor, "B H T *K"]) -> Float[Tensor, "x y t *K"]:
        return self._at(z, self.batch.tile.rows)

    def keys(self, z: Float[Tensor, "B H S K"]) -> Float[Tensor, "x y s K"]:
        cols = self.batch.tile.cols
        if isinstance(cols, range):
            return self._at(z, cols)
        if isinstance(cols, tuple):
            return torch.cat([self._at(z, r) for r in cols], dim=2)
        named, index = self._named(cols, z.shape[2])
        if self._is_one:
            taken = z[self.examples].flatten(1, 2).index_select(1, index)
            return taken.unflatten(1, (named.shape[0], named.shape[-1]))
        return z[self.examples.start].flatten(0, 1).index_select(0, index).unflatten(0, named.shape)

    def mask(self, mask: TileMask | None) -> TileMask | None:
        if mask is None or mask.none.shape[1] == 1:
            return mask
        if self.batch.repeats == 1:
            return TileMask(*(z[:, self.places] for z in mask))
        some = TileMask(*(z[self.places, self.tiles] for z in mask))
        return TileMask(*(z.transpose(0, 1) for z in some)) if self._is_one else some

    def add_to_keys(self, whole: Float[Tensor, "B H S K"], part: Float[Tensor, "x y s K"]) -> None:
        """Into the gradients of all keys."""
        cols = self.batch.tile.cols
        if isinstance(cols, Tensor):
            _, index = self._named(cols, whole.shape[2])
            each = part if self._is_one else part[None]
            for one, some in zip(whole[self.examples], each, strict=True):
                rows = some.flatten(0, -2).to(whole.dtype)
                one.view(-1, whole.shape[3]).index_add_(0, index, rows)
            return
        count = self.tiles.stop - self.tiles.start
        ranges = (cols,) if isinstance(cols, range) else cols
        for r, some in zip(ranges, part.split([len(r) for r in ranges], dim=2), strict=True):
            for distinct in apart(r, self.batch.shift, count):
                self._at(whole, r[distinct]).add_(some[:, :, distinct])

    @property
    def _is_one(self) -> bool:
        return self.tiles.stop - self.tiles.start == 1

    def _at(self, z: Tensor, places: range) -> Tensor:
        first = places.start + self.tiles.start * self.batch.shift
        if self._is_one:
            moved = range(first, first + places.stop - places.start, places.step)
            return z[self.examples, _slice(self.heads), _slice(moved)]
        B, H, T, *rest = z.stride()
        return z.as_strided(
            (len(self.heads), self.tiles.stop - self.tiles.start, len(places), *z.shape[3:]),
            (self.heads.step * H, self.batch.shift * T, places.step * T, *rest),
            z.storage_offset() + self.examples.start * B + self.heads.start * H + first * T,
        )

    def _named(
        self, cols: Int[Tensor, "H *n s"], S: int
    ) -> tuple[Int[Tensor, "h *n s"], Int[Tensor, "m"]]:
        """The keys, and their rows in [H * S, K]: whole rows are copied, where a gather would look up every number."""
        named = cols[_slice(self.heads)]
        named = named[:, self.tiles] if named.dim() == 3 else named
        first = torch.arange(self.heads.start, self.heads.stop, self.heads.step, device=cols.device)
        first = first.view(-1, *[1] * (named.dim() - 1)) * S
        return named, (named.clamp(min=0) + first).flatten()


def num_keys(cols: TileKeys) -> int:
    if isinstance(cols, tuple):
        return sum(len(r) for r in cols)
    return cols.shape[-1] if isinstance(cols, Tensor) else len(cols)


def apart(cols: range, shift: int, count: int) -> Iterator[slice]:
    """Parts of the keys such that `count` tiles `shift` apart name no key twice within one."""
    if count == 1 or shift * count <= cols.step:
        yield slice(0, len(cols))
        return
    width = shift // cols.step if shift % cols.step == 0 else 1
    yield from tiles(len(cols), width)


def positions(of: TileKeys) -> Int[Tensor, "*h n"]:
    if isinstance(of, Tensor):
        return of
    if isinstance(of, range):
        return torch.arange(of.start, of.stop, of.step)
    return torch.cat([positions(r) for r in (range(0), *of)])


def _slice(r: range) -> slice:
    return slice(r.start, r.stop, r.step)


def attend(
    q, k, v, mask: TileMask | None, scale: float
) -> tuple[Float[Tensor, "x y t V"], Float[Tensor, "x y t"]]:
    """Outputs, and the log-sum-exp of the scores; rows without a key: 0 and -inf."""
    if q.shape[-1] == v.shape[-1]:
        bias = None if mask is None else mask.bias
        y, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=bias, scale=scale
        )
        return y, lse if mask is None else lse.masked_fill(mask.none, -math.inf)
    lead = q.shape[:2]
    scores = _scores(q, k, mask, scale)
    lse = scores.logsumexp(-1)
    weights = exp_(scores - lse.masked_fill(lse == -math.inf, 0)[..., None])
    y = weights.to(v.dtype) @ v.flatten(0, 1)
    return y.unflatten(0, lead), lse.unflatten(0, lead)


def attend_backward(
    dy, q, k, v, y, lse, mask: TileMask | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v: five products in cache. `lse` is finite.

    The fused backward fills its results with zeros first, and takes a fifth more time on a CPU.
    """
    lead = q.shape[:2]
    delta = (dy.to(lse.dtype) * y).sum(-1, keepdim=True).flatten(0, 1)
    weights = _scores(q, k, mask, scale * LOG2_E)
    weights.sub_(LOG2_E * lse.flatten(0, 1)[..., None]).exp2_()
    dy, q, k, v = (z.flatten(0, 1) for z in (dy, q, k, v))
    dv = weights.to(dy.dtype).mT @ dy
    dscores = (dy @ v.mT).to(lse.dtype).sub_(delta).mul_(weights).to(q.dtype)
    dq, dk = (dscores @ k).mul_(scale), (dscores.mT @ q).mul_(scale)
    return dq.unflatten(0, lead), dk.unflatten(0, lead), dv.unflatten(0, lead)


def _scores(q, k, mask: TileMask | None, scale: float) -> Float[Tensor, "n t s"]:
    """In float32 at least: a large score that is rounded makes a weight that is wrong."""
    wide, lead = wide_type(q), q.shape[:2]
    q, k_t = q.flatten(0, 1).to(wide), k.flatten(0, 1).to(wide).mT
    if mask is None:
        return (scale * q) @ k_t
    bias = mask.bias.to(wide)
    alone = bias.shape[:2] == (1, 1)
    each = bias[0] if alone else bias.expand(*lead, *bias.shape[2:]).flatten(0, 1)
    return torch.baddbmm(each, q, k_t, alpha=scale)
