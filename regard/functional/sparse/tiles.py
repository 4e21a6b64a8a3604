"""Exact softmax attention over a plan of tiles: some queries meet some keys, and what they allow is computed there.

Parts of one query's softmax that lie in different tiles are merged by their log-sum-exp. Nothing of size [T S] is
stored; the backward recomputes each tile's weights from the final log-sum-exp, so that its cost too follows the plan.
Equal tiles at equal distances are one batch: views of q, k, v that overlap in memory, and one call for all of them.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.functional.shared.numerics import LOG2_E, exp_

Keys = range | tuple[range, ...] | Int[Tensor, "H s"]

ROOM_ON_CPU = 1 << 17  # numbers of an output that a core keeps in its cache
WEIGHTS_ON_CPU = 1 << 18  # weights of a run that two cores keep, and two tensors of their size
ALONE_ON_CPU = (
    1 << 19
)  # weights of a tile without a batch, of some heads: all heads at once are fresh memory
ROOM_ELSEWHERE = 1 << 26


class Tile(NamedTuple):
    rows: range  # queries
    cols: Keys  # each once; -1 in a tensor: none
    part: int = 0  # tiles of one part share no query
    front: bool = False  # the keys are those in front of the tokens' own

    def moved(self, by: int) -> "Tile":
        """The tile `by` tokens further on; its keys are one range."""
        rows, cols = self.rows, self.cols
        assert isinstance(cols, range)
        return self._replace(
            rows=range(rows.start + by, rows.stop + by, rows.step),
            cols=range(cols.start + by, cols.stop + by, cols.step),
        )


class Pairs(NamedTuple):
    """What a tile allows: as truth values, as a bias of 0 and -inf, and the rows that see nothing."""

    allowed: Bool[Tensor, "b h t s"]
    bias: Float[Tensor, "b h t s"]
    none: Bool[Tensor, "b h t"]

    @classmethod
    def of(cls, allowed: Bool[Tensor, "b h t s"], dtype: torch.dtype) -> "Pairs":
        bias = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        return cls(allowed, bias.masked_fill_(~allowed, -math.inf), ~allowed.any(-1))


class Batch(NamedTuple):
    """`repeats` tiles, each `shift` tokens behind the one before, that allow the same pairs; None: all of them.

    Where keys are named by a tensor, it is that of all tiles [H, repeats, s], and the pairs are theirs [H, repeats, 1, s].
    """

    tile: Tile
    pairs: Callable[[torch.dtype], Pairs | None]
    repeats: int = 1
    shift: int = 0


class HeadPlan(NamedTuple):
    """The tiles of some heads, part by part. `whole`: the first part holds every query."""

    heads: slice
    batches: list[Batch]
    whole: bool


Plan = list[HeadPlan]


def tile_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    plan: Plan,
    back: Callable[[], Plan],
    front: tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs that the plan allows; a query with no key in any tile gives zero.

    back: the same pairs in the plan of the backward. front: other keys and values.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _TileAttention.apply(q, k, v, *(front or (None, None)), plan, back, scale)


class _TileAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, front_k, front_v, plan, back, scale):
        batches = [batch for heads in plan for batch in heads.batches]
        gathered = any(isinstance(batch.tile.cols, Tensor) for batch in batches)
        k, v = (z.contiguous() if gathered or z.stride(-1) != 1 else z for z in (k, v))
        wide = torch.promote_types(q.dtype, torch.float32)
        merging = any(batch.tile.part > 0 for batch in batches)
        y = _beside(q, v.shape[3], wide if merging else q.dtype)
        if not all(heads.whole for heads in plan):
            y.zero_()
        total = q.new_full(q.shape[:3], -math.inf, dtype=wide)
        for heads in plan:
            for batch in heads.batches:
                pairs, tile = batch.pairs(q.dtype), batch.tile
                keys, values = (front_k, front_v) if tile.front else (k, v)
                for piece in _pieces(batch, heads.heads, q, v.shape[3]):
                    here = piece.pairs(pairs)
                    part, lse = attend(
                        piece.rows(q), piece.keys(keys), piece.keys(values), here, scale
                    )
                    merge(piece.rows(y), piece.rows(total), part, lse, first=tile.part == 0)
        y = y.to(q.dtype)
        ctx.save_for_backward(q, k, v, front_k, front_v, y, total)
        ctx.back, ctx.scale = back, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, front_k, front_v, y, total = ctx.saved_tensors
        total = total.masked_fill(total == -math.inf, 0)
        plan, wide = ctx.back(), total.dtype
        dq = _beside(q, q.shape[3], wide)
        if not all(heads.whole for heads in plan):
            dq.zero_()
        dk, dv, front_dk, front_dv = (
            None if z is None else torch.zeros_like(z, dtype=wide) for z in (k, v, front_k, front_v)
        )
        for heads in plan:
            for batch in heads.batches:
                pairs, tile = batch.pairs(q.dtype), batch.tile
                keys, values = (front_k, front_v) if tile.front else (k, v)
                dkeys, dvalues = (front_dk, front_dv) if tile.front else (dk, dv)
                for piece in _pieces_of_a_head(batch, heads.heads, q):
                    grads = attend_backward(
                        piece.rows(dy),
                        piece.rows(q),
                        piece.keys(keys),
                        piece.keys(values),
                        piece.rows(y),
                        piece.rows(total),
                        piece.pairs(pairs),
                        ctx.scale,
                    )
                    assert dkeys is not None and dvalues is not None
                    here = piece.rows(dq)
                    here.copy_(grads[0]) if tile.part == 0 else here.add_(grads[0])
                    piece.add_keys(dkeys, grads[1])
                    piece.add_keys(dvalues, grads[2])
        of, found = (q, k, v, front_k, front_v), (dq, dk, dv, front_dk, front_dv)
        given = [None if dz is None else dz.to(z.dtype) for z, dz in zip(of, found, strict=True)]
        return (*given, None, None, None)


def _beside(
    q: Float[Tensor, "B H T K"], width: int, dtype: torch.dtype
) -> Float[Tensor, "B H T V"]:
    """Not filled. Where the heads of a token lie side by side in q they do here, and are merged without a copy."""
    B, H, T, _ = q.shape
    if q.stride(1) < q.stride(2):
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


class _Piece(Protocol):
    """Some tiles of some heads, computed at once."""

    def rows(self, z: Tensor) -> Tensor: ...

    def keys(self, z: Tensor) -> Tensor: ...

    def pairs(self, pairs: Pairs | None) -> Pairs | None: ...

    def add_keys(self, whole: Tensor, part: Tensor) -> None: ...


class _One(NamedTuple):
    """One tile, of the whole batch."""

    heads: slice
    tile: Tile

    def rows(self, z: Float[Tensor, "B H T *K"]) -> Float[Tensor, "B h t *K"]:
        return z[:, self.heads, _slice(self.tile.rows)]

    def keys(self, z: Float[Tensor, "B H S K"]) -> Float[Tensor, "B h s K"]:
        return take(z[:, self.heads], self._cols)

    def pairs(self, pairs: Pairs | None) -> Pairs | None:
        return pairs

    def add_keys(self, whole: Float[Tensor, "B H S K"], part: Float[Tensor, "B h s K"]) -> None:
        cols = self._cols
        if isinstance(cols, Tensor):
            _, H, S, _ = whole.shape
            flat = _flat(cols, S, torch.arange(H, device=whole.device)[self.heads])
            some = part.flatten(1, 2).to(whole.dtype)
            whole.view(-1, H * S, whole.shape[3]).index_add_(1, flat, some)
            return
        ranges = (cols,) if isinstance(cols, range) else cols
        for r, some in zip(ranges, part.split([len(r) for r in ranges], dim=2), strict=True):
            whole[:, self.heads, _slice(r)] += some

    @property
    def _cols(self) -> Keys:
        cols = self.tile.cols
        return cols[self.heads] if isinstance(cols, Tensor) else cols


class _Run(NamedTuple):
    """Equal tiles of one row of the batch, as views [h n t K] of it."""

    b: int
    heads: slice
    batch: Batch
    tiles: range  # which of the batch

    def rows(self, z: Float[Tensor, "B H T *K"]) -> Float[Tensor, "h n t *K"]:
        return self._view(z, self.batch.tile.rows)

    def keys(self, z: Float[Tensor, "B H S K"]) -> Float[Tensor, "h n s K"]:
        cols = self.batch.tile.cols
        if isinstance(cols, range):
            return self._view(z, cols)
        each = zip(z[self.b, self.heads], self._named(cols), strict=True)
        taken = torch.stack([one.index_select(0, index) for one, index in each])
        return taken.unflatten(1, (len(self.tiles), -1))

    def pairs(self, pairs: Pairs | None) -> Pairs | None:
        if pairs is None or isinstance(self.batch.tile.cols, range):
            return pairs
        return Pairs(*(z[self.heads, self.tiles.start : self.tiles.stop] for z in pairs))

    def add_keys(self, whole: Float[Tensor, "B H S K"], part: Float[Tensor, "h n s K"]) -> None:
        cols = self.batch.tile.cols
        if isinstance(cols, range):
            for some in apart(cols, self.batch.shift, len(self.tiles)):
                self._view(whole, cols[some]).add_(part[:, :, some])
            return
        for h, index in enumerate(self._named(cols)):
            rows = part[h].flatten(0, 1).to(whole.dtype)
            whole[self.b, self.heads][h].index_add_(0, index, rows)

    def _named(self, cols: Keys) -> Int[Tensor, "h m"]:
        assert isinstance(cols, Tensor)
        return cols[self.heads, self.tiles.start : self.tiles.stop].flatten(1)

    def _view(self, z: Tensor, places: range) -> Tensor:
        B, H, T, *rest = z.stride()
        step = self.heads.step or 1
        heads = range(self.heads.start, self.heads.stop, step)
        first = places.start + self.tiles.start * self.batch.shift
        return z.as_strided(
            (len(heads), len(self.tiles), len(places), *z.shape[3:]),
            (step * H, self.batch.shift * T, places.step * T, *rest),
            z.storage_offset() + self.b * B + heads.start * H + first * T,
        )


def _pieces(
    batch: Batch, heads: slice, q: Float[Tensor, "B H T K"], width: int
) -> Iterator[_Piece]:
    """Runs whose outputs fit in the cache; tile by tile, each for the whole batch, where that takes fewer calls."""
    tile, count = batch.tile, batch.repeats
    if count == 1:
        yield _One(heads, tile)
        return
    every = range(heads.start, heads.stop, heads.step or 1)
    room = ROOM_ON_CPU if q.device.type in ("cpu", "meta") else ROOM_ELSEWHERE
    room = max(1, room // (len(tile.rows) * width))
    together = q.stride(1) < q.stride(2)  # heads of a token lie side by side
    most = (len(every), room // len(every)) if together else (room // count, room)
    many, n = max(1, most[0]), max(1, min(count, most[1]))
    some = [every[h : h + many] for h in range(0, len(every), many)]
    if isinstance(tile.cols, range) and q.shape[0] * len(some) * -(-count // n) > count:
        yield from (_One(heads, tile.moved(i * batch.shift)) for i in range(count))
        return
    for b in range(q.shape[0]):
        for few in some:
            for first in range(0, count, n):
                yield _Run(b, _slice(few), batch, range(first, min(first + n, count)))


def _pieces_of_a_head(batch: Batch, heads: slice, q: Float[Tensor, "B H T K"]) -> Iterator[_Piece]:
    """Runs whose weights fit in the cache, head by head, so that their tiles are equally far apart in memory."""
    tile, count = batch.tile, batch.repeats
    pairs = len(tile.rows) * _width(tile.cols)
    every = range(heads.start, heads.stop, heads.step or 1)
    on_cpu = q.device.type in ("cpu", "meta")
    if count == 1:
        many = max(1, (ALONE_ON_CPU if on_cpu else ROOM_ELSEWHERE) // (q.shape[0] * pairs))
        yield from (_One(_slice(every[h : h + many]), tile) for h in range(0, len(every), many))
        return
    n = max(1, (WEIGHTS_ON_CPU if on_cpu else ROOM_ELSEWHERE) // pairs)
    for b in range(q.shape[0]):
        for h in every:
            for first in range(0, count, n):
                yield _Run(b, slice(h, h + 1, 1), batch, range(first, min(first + n, count)))


def _width(cols: Keys) -> int:
    return cols.shape[-1] if isinstance(cols, Tensor) else positions(cols).numel()


def apart(cols: range, shift: int, count: int) -> Iterator[slice]:
    """Parts of the keys such that `count` tiles `shift` apart name no key twice within one."""
    if shift * count <= cols.step:
        yield slice(0, len(cols))
        return
    width = shift // cols.step if shift % cols.step == 0 else 1
    for first in range(0, len(cols), width):
        yield slice(first, min(first + width, len(cols)))


def positions(of: Keys, device: torch.device | None = None) -> Int[Tensor, "*h n"]:
    if isinstance(of, Tensor):
        return of
    if isinstance(of, range):
        return torch.arange(of.start, of.stop, of.step, device=device)
    return torch.cat([positions(r, device) for r in (range(0), *of)])


def _slice(r: range) -> slice:
    return slice(r.start, r.stop, r.step)


def take(z: Float[Tensor, "B H S K"], cols: Keys) -> Float[Tensor, "B H s K"]:
    if isinstance(cols, range):
        return z[:, :, _slice(cols)]
    if isinstance(cols, tuple):
        return torch.cat([z[:, :, _slice(r)] for r in cols], dim=2)
    flat = _flat(cols, z.shape[2], torch.arange(len(cols), device=cols.device))
    return z.flatten(1, 2).index_select(1, flat).unflatten(1, cols.shape)


def _flat(cols: Int[Tensor, "h s"], S: int, heads: Int[Tensor, "h"]) -> Int[Tensor, "n"]:
    """Rows of [B, H * S, K]: whole rows are copied, where a gather would look up every number."""
    return (cols.clamp(min=0) + heads[:, None] * S).flatten()


def _fused(q: Tensor, v: Tensor) -> bool:
    return q.device.type in ("cpu", "meta") and q.shape[-1] == v.shape[-1]


def attend(
    q, k, v, pairs: Pairs | None, scale
) -> tuple[Float[Tensor, "B H t V"], Float[Tensor, "B H t"]]:
    """Outputs, and the log-sum-exp of the scores; rows without a key: 0 and -inf."""
    if _fused(q, v):
        bias = None if pairs is None else pairs.bias
        y, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=bias, scale=scale
        )
        return y, lse if pairs is None else lse.masked_fill(pairs.none, -math.inf)
    lead = q.shape[:2]
    scores = _scores(q, k, pairs, scale)
    lse = scores.logsumexp(-1)
    weights = exp_(scores - lse.masked_fill(lse == -math.inf, 0)[..., None])
    y = weights.to(v.dtype) @ v.flatten(0, 1)
    return y.unflatten(0, lead), lse.unflatten(0, lead)


def attend_backward(
    dy, q, k, v, y, lse, pairs: Pairs | None, scale
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v: five products in cache. `lse` is finite.

    The fused backward makes tensors of zeros for its results first, and is behind this by a fifth on a CPU.
    """
    lead = q.shape[:2]
    delta = (dy.to(lse.dtype) * y).sum(-1, keepdim=True).flatten(0, 1)
    weights = _scores(q, k, pairs, scale * LOG2_E)
    weights.sub_(LOG2_E * lse.flatten(0, 1)[..., None]).exp2_()
    dy, q, k, v = (z.flatten(0, 1) for z in (dy, q, k, v))
    dv = weights.to(dy.dtype).mT @ dy
    dscores = (dy @ v.mT).to(lse.dtype).sub_(delta).mul_(weights).to(q.dtype)
    dq, dk = (dscores @ k).mul_(scale), (dscores.mT @ q).mul_(scale)
    return dq.unflatten(0, lead), dk.unflatten(0, lead), dv.unflatten(0, lead)


def _scores(q, k, pairs: Pairs | None, scale) -> Float[Tensor, "n t s"]:
    """In float32 at least: a large score that is rounded makes a weight that is wrong."""
    wide, lead = torch.promote_types(q.dtype, torch.float32), q.shape[:2]
    q, k_t = q.flatten(0, 1).to(wide), k.flatten(0, 1).to(wide).mT
    if pairs is None:
        return (scale * q) @ k_t
    bias = pairs.bias.to(wide)
    alone = bias.shape[:2] == (1, 1)
    each = bias[0] if alone else bias.expand(*lead, *bias.shape[2:]).flatten(0, 1)
    return torch.baddbmm(each, q, k_t, alpha=scale)
