"""Softmax attention along sorted orders: tokens are sorted by group, and a query meets the keys of near rank.

Each of R rounds has an order of its own, in which a query may look at one interval of ranks. The interval reaches at
most `before` blocks back and `after` blocks on, so that a block of queries meets one slice of sorted keys: time and
memory are linear in the length, and nothing of size [T T] is stored. Rounds are merged by their log-sum-exp.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.rows import rows_at
from regard.functional.softmax import masked_softmax
from regard.functional.tiles import Pairs, attend, attend_backward

PAIRS_ON_CPU = (
    1 << 16,
    1 << 18,
)  # query-key pairs held at once, at least and at best: scores stay in the cache
PAIRS_ELSEWHERE = 1 << 25, 1 << 27
PARTS = 16, 64  # of a round, at best and at most: the number of steps does not grow with the length
ROWS = 256  # queries whose weights over all keys are held at once, where global tokens are given


@dataclass(frozen=True, eq=False)
class Order:
    """Who may meet whom, in R rounds; `first` and `end` belong to tokens and speak of ranks."""

    source: Int[Tensor, "B H R T"]  # the token of each rank
    rank: Int[Tensor, "B H R T"]  # of each token
    first: Int[Tensor, "B H R T"]
    end: Int[Tensor, "B H R T"]
    block: int
    before: int
    after: int
    only_earlier: bool  # no interval holds a later token


def band(group: Int[Tensor, "B H R T"], width: int, *, include_self: bool = False) -> Order:
    """The last `width` earlier tokens of the query's own group; prefixes of a sequence have the same band."""
    source, rank, start, _ = _sorted(group)
    place = _places(rank)
    first = torch.maximum(start, place - width)
    end = (place + include_self).expand_as(first)
    return Order(
        source, rank, first.gather(-1, rank.long()), end.gather(-1, rank.long()), width, 1, 0, True
    )


def chunks(
    group: Int[Tensor, "B H R T"], size: int, *, before: int = 1, after: int = 0, same_group: bool
) -> Order:
    """Chunks of the sorted order: a query looks at its own, `before` earlier and `after` later ones, never round the ends."""
    source, rank, start, stop = _sorted(group)
    chunk = _places(rank) // size
    if not same_group:
        start, stop = torch.zeros_like(start), torch.full_like(stop, group.shape[-1])
    first = torch.maximum(start, (chunk - before) * size)
    end = torch.minimum(stop, (chunk + 1 + after) * size)
    first, end = (z.gather(-1, rank.long()) for z in (first, end))
    return Order(source, rank, first, end, size, before, after, False)


def _sorted(group: Int[Tensor, "B H R T"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Token of each rank, rank of each token, and the first rank and the end of the group at each rank."""
    ordered, source = group.sort(dim=-1, stable=True)
    place = _places(source)
    rank = torch.empty_like(place.expand_as(source)).scatter(-1, source, place.expand_as(source))
    edge = ordered[..., 1:] != ordered[..., :-1]
    T = group.shape[-1]
    start = torch.where(F.pad(edge, (1, 0), value=True), place, 0).cummax(-1).values
    stop = (
        torch.where(F.pad(edge, (0, 1), value=True), place + 1, T)
        .flip(-1)
        .cummin(-1)
        .values.flip(-1)
    )
    return source, rank, start, stop


def _places(like: Tensor) -> Int[Tensor, "T"]:
    return torch.arange(like.shape[-1], dtype=torch.int32, device=like.device)


def ordered_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    order: Order,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs of the order that the mask allows.

    exclude_self: a token sees itself only where no round offers it another key. count_once: a pair that several
    rounds offer has weight exp(score) once, and not once for each. Global tokens make every query meet every key.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if mask.global_tokens is not None:
        return _all_rows(q, k, v, order, mask, scale, exclude_self, count_once)
    rules = _Rules(exclude_self, count_once, mask.causal and not order.only_earlier)
    y, seen = _OrderedAttention.apply(
        *(z.flatten(0, 1).contiguous() for z in (q, k, v)),
        *(z.flatten(0, 1) for z in (order.source, order.rank, order.first, order.end)),
        None if mask.valid is None else mask.valid[:, None].expand(*q.shape[:2], -1).flatten(0, 1),
        None if mask.pairwise is None else mask.pairwise.expand(*q.shape[:2], -1, -1),
        (order.block, order.before, order.after),
        rules,
        scale,
    )
    y = y.unflatten(0, q.shape[:2])
    if not exclude_self:
        return y
    return torch.where(seen.unflatten(0, q.shape[:2])[..., None], y, _oneself(v, mask))


def ordered_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    order: Order,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
) -> Float[Tensor, "B H T T"]:
    """The weights that `ordered_attention` applies; rows without a key are zero."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    rows = slice(0, q.shape[2])
    return _weights(q, k, order, mask, scale, exclude_self, count_once, rows)


def _oneself(v: Float[Tensor, "B H T V"], mask: Mask) -> Float[Tensor, "B H T V"]:
    """The values of the tokens that may see themselves."""
    if mask.pairwise is not None:
        v = v * mask.pairwise.diagonal(dim1=2, dim2=3)[..., None]
    return v if mask.valid is None else v * mask.valid[:, None, :, None]


def _weights(
    q, k, order: Order, mask: Mask, scale, exclude_self, count_once, rows: slice
) -> Tensor:
    T = q.shape[2]
    rank = order.rank[..., None, :]
    first, end = order.first[..., rows, None], order.end[..., rows, None]
    count = ((rank >= first) & (rank < end)).sum(2)
    allowed = mask.dense(T, T, pattern=count > 0, rows=rows)
    if exclude_self:
        oneself = torch.eye(T, dtype=torch.bool, device=q.device)[rows]
        others = allowed & ~oneself
        fallback = mask.dense(T, T, device=q.device, rows=rows) & oneself
        allowed = torch.where(others.any(-1, keepdim=True), others, fallback)
    scores = scale * q[:, :, rows] @ k.transpose(-1, -2)
    if not count_once:
        scores = scores + count.clamp(min=1).to(scores.dtype).log()
    return masked_softmax(scores, allowed)


def _all_rows(q, k, v, order: Order, mask: Mask, scale, exclude_self, count_once) -> Tensor:
    parts = []
    for start in range(0, q.shape[2], ROWS):
        rows = slice(start, min(start + ROWS, q.shape[2]))
        parts.append(_weights(q, k, order, mask, scale, exclude_self, count_once, rows) @ v)
    return torch.cat(parts, dim=2)


class _Rules(NamedTuple):
    exclude_self: bool
    count_once: bool
    causal: bool


class _Part(NamedTuple):
    """Blocks of queries, and the slices of keys that they meet, in one round."""

    rows: slice  # of batch x heads
    round: int
    ranks: slice  # of the queries, whole blocks
    queries: Int[Tensor, "n r"]  # their tokens
    keys: Int[Tensor, "n l"]  # tokens of the keys of all these blocks
    allowed: Bool[Tensor, "n g c w"]


class _OrderedAttention(torch.autograd.Function):
    """B and H are one axis N. The backward recomputes each part's weights from the final log-sum-exp."""

    @staticmethod
    def forward(ctx, q, k, v, source, rank, first, end, valid, pairwise, window, rules, scale):
        plan = _Plan(source, rank, first, end, valid, pairwise, window, rules)
        wide = torch.promote_types(q.dtype, torch.float32)
        N, R, T = rank.shape
        y = q.new_zeros(N, T, v.shape[-1], dtype=wide)
        total = q.new_full((N, T), -math.inf, dtype=wide)
        for r in range(R):
            part_y = q.new_zeros(N, plan.padded, v.shape[-1], dtype=wide)
            part_lse = q.new_zeros(N, plan.padded, dtype=wide)
            for rows, ranks in plan.parts():
                part = plan.part(rows, r, ranks)
                pairs = Pairs.of(part.allowed, q.dtype)
                found, lse = attend(*_gathered(part, q, k, v, window), pairs, scale)
                part_y[rows, ranks] = found.flatten(1, 2).to(wide)
                part_lse[rows, ranks] = lse.flatten(1, 2).to(wide)
            lse = part_lse.gather(1, rank[:, r].long())
            both = torch.logaddexp(total, lse)
            some = both.masked_fill(both == -math.inf, 0)
            y = (
                y * (total - some).exp()[..., None]
                + rows_at(part_y, rank[:, r]) * (lse - some).exp()[..., None]
            )
            total = both
        y = y.to(q.dtype)
        ctx.save_for_backward(q, k, v, y, total, source, rank, first, end, valid, pairwise)
        ctx.window, ctx.rules, ctx.scale = window, rules, scale
        seen = total > -math.inf
        ctx.mark_non_differentiable(seen)
        return y, seen

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, _):
        q, k, v, y, total, source, rank, first, end, valid, pairwise = ctx.saved_tensors
        plan = _Plan(source, rank, first, end, valid, pairwise, ctx.window, ctx.rules)
        dy, total = dy.contiguous(), total.masked_fill(total == -math.inf, 0)
        wide, grads = total.dtype, [torch.zeros_like(z, dtype=total.dtype) for z in (q, k, v)]
        block, before, after = ctx.window
        room = (before + after) * block
        for r in range(rank.shape[1]):
            part_q = q.new_zeros(q.shape[0], plan.padded, q.shape[2], dtype=wide)
            part_k, part_v = (
                z.new_zeros(z.shape[0], plan.padded + room, z.shape[2], dtype=wide) for z in (k, v)
            )
            for rows, ranks in plan.parts():
                part = plan.part(rows, r, ranks)
                blocks = [_blocks(rows_at(z[rows], part.queries), block) for z in (dy, y)]
                lse = _blocks(total[rows].gather(1, part.queries), block)
                qkv = _gathered(part, q, k, v, ctx.window)
                pairs = Pairs.of(part.allowed, q.dtype)
                dq, *dkv = attend_backward(blocks[0], *qkv, blocks[1], lse, pairs, ctx.scale)
                part_q[rows, ranks] = dq.flatten(1, 2).to(wide)
                for whole, windows in zip((part_k, part_v), dkv, strict=True):
                    _add_windows(whole[rows], windows.to(wide), ranks, ctx.window)
            inside = slice(before * block, before * block + plan.padded)
            for whole, part_of in zip(
                grads, (part_q, part_k[:, inside], part_v[:, inside]), strict=True
            ):
                whole += rows_at(part_of, rank[:, r])
        dq, dk, dv = (g.to(z.dtype) for g, z in zip(grads, (q, k, v), strict=True))
        return dq, dk, dv, *[None] * 9


@dataclass(frozen=True, eq=False)
class _Plan:
    source: Int[Tensor, "N R T"]
    rank: Int[Tensor, "N R T"]
    first: Int[Tensor, "N R T"]
    end: Int[Tensor, "N R T"]
    valid: Bool[Tensor, "N T"] | None
    pairwise: Bool[Tensor, "B H T T"] | None
    window: tuple[int, int, int]
    rules: _Rules

    @property
    def padded(self) -> int:
        """The length in whole blocks; ranks beyond the last token belong to nobody and lie in no interval."""
        return self.source.shape[-1] + -self.source.shape[-1] % self.window[0]

    def parts(self) -> list[tuple[slice, slice]]:
        """Rows of batch x heads, and ranks of queries, whose pairs are held at once."""
        block, before, after = self.window
        N, blocks = self.source.shape[0], self.padded // block
        low, high = PAIRS_ON_CPU if self.source.device.type in ("cpu", "meta") else PAIRS_ELSEWHERE
        pairs = block * block * (before + 1 + after)
        best, least = (-(-pairs * N * blocks // parts) for parts in PARTS)
        room = max(low, min(best, high), least)
        rows = max(1, min(N, room // pairs))
        many = max(1, min(blocks, room // (pairs * rows)))
        return [
            (slice(n, min(n + rows, N)), slice(c * block, min(c + many, blocks) * block))
            for n in range(0, N, rows)
            for c in range(0, blocks, many)
        ]

    def part(self, rows: slice, r: int, ranks: slice) -> _Part:
        block, before, after = self.window
        T = self.source.shape[-1]
        source = self.source[rows, r]
        low, high = ranks.start - before * block, ranks.stop + after * block
        keys = F.pad(source[:, max(low, 0) : min(high, T)], (max(-low, 0), max(high - T, 0)))
        queries = keys[:, before * block : before * block + ranks.stop - ranks.start]
        place = torch.arange(low, high, dtype=torch.int32, device=source.device)
        i = _blocks(queries, block)[..., None]
        key_place = _windows(place[None], self.window)[:, :, None, :]
        query_place = _blocks(place[None, before * block :][:, : queries.shape[1]], block)[
            ..., None
        ]
        allowed = (key_place >= self._of(self.first, rows, r, queries)) & (
            key_place < self._of(self.end, rows, r, queries)
        )
        if (
            queries.shape[1] + ranks.start > T
        ):  # the last block's empty places borrow a token, and see nothing
            allowed = allowed & (query_place < T)
        if self.rules.exclude_self:
            allowed = allowed & (key_place != query_place)
        if self.rules.count_once and r > 0:
            allowed = allowed & ~self._met_before(rows, r, queries, keys)
        if self.rules.causal:
            allowed = allowed & (_windows(keys, self.window)[:, :, None, :] <= i)
        if self.valid is not None:
            present = self.valid[rows].gather(1, keys)
            allowed = allowed & _windows(present, self.window)[:, :, None, :]
        if self.pairwise is not None:
            n = torch.arange(rows.start, rows.stop, device=source.device)[:, None, None, None]
            H = self.pairwise.shape[1]
            j = _windows(keys, self.window)[:, :, None, :]
            allowed = allowed & self.pairwise[n // H, n % H, i, j]
        return _Part(rows, r, ranks, queries, keys, allowed)

    def _met_before(
        self, rows: slice, r: int, queries: Tensor, keys: Tensor
    ) -> Bool[Tensor, "n g c w"]:
        """Pairs that a round before r offers."""
        n = keys.shape[0]
        i = queries[:, None].expand(-1, r, -1)
        place = self.rank[rows, :r].gather(2, keys[:, None].expand(-1, r, -1)).flatten(0, 1)
        first, end = (
            _blocks(z[rows, :r].gather(2, i).flatten(0, 1), self.window[0])[..., None]
            for z in (self.first, self.end)
        )
        place = _windows(place, self.window)[:, :, None, :]
        return ((place >= first) & (place < end)).unflatten(0, (n, r)).any(1)

    def _of(self, bounds: Tensor, rows: slice, r: int, queries: Tensor) -> Int[Tensor, "n g c 1"]:
        return _blocks(bounds[rows, r].gather(1, queries), self.window[0])[..., None]


def _gathered(part: _Part, q, k, v, window) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [n g c K] and the windows of keys [n g w K] and values [n g w V] of a part."""
    queries = _blocks(rows_at(q[part.rows], part.queries), window[0])
    keys, values = (_windows(rows_at(z[part.rows], part.keys), window) for z in (k, v))
    return queries, keys, values


def _blocks(z: Tensor, block: int) -> Tensor:
    return z.unflatten(1, (-1, block))


def _windows(z: Tensor, window: tuple[int, int, int]) -> Tensor:
    """[n l ..] -> [n g w ..]: the keys that each block of queries meets, as a view."""
    block, before, after = window
    seen = z.unfold(1, (before + 1 + after) * block, block)
    return seen if z.dim() == 2 else seen.transpose(2, 3)


def _add_windows(
    whole: Tensor, windows: Tensor, ranks: slice, window: tuple[int, int, int]
) -> None:
    """The transpose of `_windows`: each slice of a window goes to its own block of sorted keys."""
    block, before, after = window
    for step in range(before + 1 + after):
        start = ranks.start + step * block
        part = windows[:, :, step * block : (step + 1) * block].flatten(1, 2)
        whole[:, start : start + part.shape[1]] += part
