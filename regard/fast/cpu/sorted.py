"""Attention along sorted orders (see `functional.sorted`) with gradients by hand; weights are not kept.

Some rows of batch x heads at a time, and some blocks of their sorted queries, each with the sorted keys that it may see. Rounds are merged as
they come, by each query's largest score and sum of exponentials; the backward computes weights again from the final sum.

A pair that is not allowed has FAR taken from its score. How many conditions it fails is counted in floating point, in the tensor that the
product of queries and keys is then added to.
"""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core import Mask
from regard.functional.rows import LOG2_E, wide_type
from regard.functional.sorted import Window, alone

EXACT = 1 << 22  # the last place up to which float32 tells halves apart
FAR = 1e30  # a few times that is a float32 still
TILE = 32
"""Queries of a block where no chunk says it."""
ROOM = 1 << 20
"""Bytes of the scores of a step."""


def attend(
    q, k, v, *, group, window: Window, mask, scale=None, exclude_self, count_once, form
) -> Tensor:
    size, _, least, most = window
    c = size if size > 1 else max(1, min(form.tile or TILE, most))
    valid = None if mask.valid is None else mask.valid[:, None].expand(q.shape[:3]).flatten(0, 1)
    call = Call(
        *_placed(group.flatten(0, 1), window),
        valid,
        ahead=(least + most) / 2,
        reach=(most - least) / 2,
        c=c,
        before=-(-most * size // c),
        after=-(min(0, least) * size // c),
        exclude_self=exclude_self,
        count_once=count_once,
        pairs=(form.room or ROOM) // 4,
    )
    scale = LOG2_E * (q.shape[-1] ** -0.5 if scale is None else scale)
    sides = (z.type_as(v).flatten(0, 1).contiguous() for z in (q, k, v))
    y, seen = (z.unflatten(0, q.shape[:2]) for z in _Attention.apply(call, scale, *sides))
    return torch.where(seen, y, alone(v, mask) if exclude_self else 0)


def unfit(q, k, v, *, window: Window, mask: Mask, **options) -> str | None:
    for name in ("pairwise", "global_tokens"):
        if getattr(mask, name) is not None:
            return f"it does not take {name}"
    in_order = window.size == 1 and window.gap and window.least >= 0
    return "its chunks are of any order" if mask.causal and not in_order else None


class Call(NamedTuple):
    """|place_i - ahead - place_j| <= reach: keys at most `before` blocks of c back, and `after` blocks on."""

    source: Int[Tensor, "N R T"]  # the token of each rank
    place: Float[Tensor, "N R T"]
    valid: Bool[Tensor, "N T"] | None
    ahead: float
    reach: float
    c: int
    before: int
    after: int
    exclude_self: bool
    count_once: bool
    pairs: int  # scores of a step


def _placed(group: Int[Tensor, "N R T"], window: Window) -> tuple[Tensor, Tensor]:
    """The token of each rank, and each token's place: rank // size, and a gap more for each group before."""
    ordered, source = group.sort(dim=-1, stable=True)
    T = group.shape[-1]
    line = (torch.arange(T) // window.size).expand_as(source)
    gap = max(window.most, -window.least) + 1 if window.gap else 0
    if gap:
        new = ordered[..., 1:] != ordered[..., :-1]
        line = line + gap * F.pad(new, (1, 0)).cumsum(-1)
    line = line.to(torch.float32 if T * (gap + 1) < EXACT else torch.float64)
    return source, torch.empty_like(source, dtype=line.dtype).scatter_(-1, source, line)


class Tile(NamedTuple):
    """Some blocks of queries, the tokens of these and of their keys, and how many conditions each pair fails."""

    blocks: slice
    queries: Int[Tensor, "gc"]
    keys: Int[Tensor, "_"]
    far: Float[Tensor, "g c s"]

    def of_queries(self, z: Float[Tensor, "nT K"]) -> Float[Tensor, "g c K"]:
        return z.index_select(0, self.queries).view(*self.far.shape[:2], -1)

    def of_keys(self, z: Float[Tensor, "nT K"]) -> Float[Tensor, "g s K"]:
        """Overlapping windows: views of what is fetched once."""
        _, c, s = self.far.shape
        return z.index_select(0, self.keys).unfold(0, s, c).transpose(1, 2)

    def scores(self, a: Float[Tensor, "g c K"], b: Float[Tensor, "g s K"]) -> Tensor:
        """a b^T, far below all others where a pair is not allowed."""
        if self.far.dtype == a.dtype:
            return self.far.baddbmm_(a, b.mT, beta=-FAR)
        return (a @ b.mT).to(wide_type(a)).sub_(self.far, alpha=FAR)

    def add_to_keys(self, to: Float[Tensor, "G c K"], w: Tensor, a: Tensor) -> None:
        """w^T a, each block of keys to its own."""
        for n, part in enumerate(w.split(to.shape[1], 2), self.blocks.start):
            to[n : n + len(a)].baddbmm_(part.mT, a)


class Rows:
    """All tokens of some rows of batch x heads, numbered through, in the sorted order of each round.

    In blocks of c: `before` empty ones, those of a row, `after` empty ones, then the next row. No query sees the key of an empty place.
    """

    def __init__(self, call: Call, rows: slice):
        self.call = call
        self.rows = rows
        source, place = (z[rows].transpose(0, 1) for z in (call.source, call.place))
        R, n, T = source.shape
        start, c = call.before * call.c, call.c
        ends = start, -T % c + call.after * c
        length = T + sum(ends)
        self.rounds = R
        self.shape = n * length // c, c
        row = torch.arange(n)[:, None]
        self.empty = F.pad(torch.zeros(n, T, dtype=torch.bool), ends, value=True).flatten()
        self.tokens = (F.pad(source, ends) + T * row).flatten(1)
        rank = torch.arange(start, start + T).expand_as(source)
        column = torch.empty_like(source).scatter_(2, source, rank) + length * row
        self.columns = column.flatten(1)  # of each token in each round
        keys = place if call.valid is None else place.masked_fill(~call.valid[rows], torch.inf)
        self.queries = (place - call.ahead).flatten(1)
        self.keys = keys.flatten(1)

    def of_tokens(self, found: Float[Tensor, "G c V"], r: int) -> Float[Tensor, "nT V"]:
        return found.flatten(0, 1).index_select(0, self.columns[r])

    def tiles(self, r: int) -> Iterator[Tile]:
        call, c = self.call, self.call.c
        tokens = self.tokens[r]
        s = (call.before + 1 + call.after) * c
        start = call.before * c
        rounds = [r, *range(r if call.count_once else 0)]
        queries, keys = (z[rounds][:, tokens] for z in (self.queries, self.keys))
        queries[0].masked_fill_(self.empty, -torch.inf)
        keys[0].masked_fill_(self.empty, torch.inf)
        keys = keys.unfold(1, s, c)[:, :, None]
        N = keys.shape[1]
        queries = queries[:, start : start + N * c].view(-1, N, c, 1)
        for n in range(0, N, more := max(1, call.pairs // (c * s))):
            some = slice(n, min(n + more, N))
            i = tokens[start + n * c : start + some.stop * c]
            j = tokens[n * c : (some.stop - 1) * c + s]
            own, *earlier = (
                (b - a).abs_() for a, b in zip(queries[:, some], keys[:, some], strict=True)
            )
            far = own.gt_(call.reach)
            if earlier:
                far += reduce(torch.minimum, earlier).le_(call.reach)
            if call.exclude_self:
                far.diagonal(start, 1, 2).fill_(1)
            yield Tile(some, i, j, far)


def _rows(call: Call) -> Iterator[Rows]:
    N, _, T = call.source.shape
    for n in range(0, N, more := max(1, call.pairs // (TILE * max(1, T)))):
        yield Rows(call, slice(n, min(n + more, N)))


class _Attention(torch.autograd.Function):
    """B and H are one axis N. Scores are in base 2, as exp2 is the exponential that is fast for all numbers."""

    @staticmethod
    def forward(ctx, call: Call, scale: float, q, k, v):
        wide, V = wide_type(q), v.shape[2]
        y = torch.empty_like(v)
        lse = q.new_empty(*v.shape[:2], 1, dtype=wide)
        for rows in _rows(call):
            queries, keys, values = (z[rows.rows].flatten(0, 1) for z in (q, k, v))
            queries = queries * scale
            total = queries.new_zeros(len(queries), V + 1, dtype=wide)  # of values, of weights
            top = total.new_full((len(queries), 1), -FAR / 2)
            found = total.new_empty(*rows.shape, V + 2)
            for r in range(rows.rounds):
                for tile in rows.tiles(r):
                    scores = tile.scores(tile.of_queries(queries), tile.of_keys(keys))
                    high = scores.amax(-1, keepdim=True).clamp_min_(-FAR / 2)
                    weights = scores.sub_(high).exp2_()
                    at = found[call.before :][tile.blocks]
                    at[..., :V] = weights.type_as(v) @ tile.of_keys(values)
                    at[..., V:] = torch.cat([weights.sum(-1, keepdim=True), high], -1)
                more, high = rows.of_tokens(found, r).split([V + 1, 1], 1)
                both = torch.maximum(top, high)
                total.mul_((top - both).exp2_()).addcmul_(more, (high - both).exp2_())
                top = both
            sums, mass = total.split([V, 1], 1)
            y[rows.rows] = (sums / mass.where(mass > 0, 1)).view_as(y[rows.rows]).type_as(y)
            lse[rows.rows] = (mass.log2() + top).where(mass > 0, torch.inf).view(-1, *lse.shape[1:])
        seen = lse < torch.inf
        ctx.save_for_backward(q, k, v, y, lse)
        ctx.call = call
        ctx.scale = scale
        ctx.mark_non_differentiable(seen)
        return y, seen

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, _):
        *sides, y, lse = ctx.saved_tensors
        wide = lse.dtype
        grads = [torch.empty_like(z) for z in sides]
        for rows in _rows(ctx.call):
            at = rows.rows
            queries, keys, values, outer = (z[at].flatten(0, 1) for z in (*sides, dy))
            queries = queries * ctx.scale
            total = lse[at].flatten(0, 1).clamp_max(FAR)
            delta = (outer * y[at].flatten(0, 1)).sum(-1, keepdim=True, dtype=wide)
            sums = [z.new_zeros(z.shape, dtype=wide) for z in (queries, keys, values)]
            for r in range(rows.rounds):
                dq, dk, dv = (z.new_zeros(*rows.shape, z.shape[1]) for z in (queries, keys, values))
                for tile in rows.tiles(r):
                    a, b = tile.of_queries(queries), tile.of_keys(keys)
                    o = tile.of_queries(outer)
                    weights = tile.scores(a, b).sub_(tile.of_queries(total)).exp2_()
                    dscores = (o @ tile.of_keys(values).mT).to(wide)
                    dscores = dscores.sub_(tile.of_queries(delta)).mul_(weights).type_as(a)
                    dq[ctx.call.before :][tile.blocks] = dscores @ b
                    tile.add_to_keys(dk, dscores, a)
                    tile.add_to_keys(dv, weights.type_as(o), o)
                for z, dz in zip(sums, (dq, dk, dv), strict=True):
                    z += rows.of_tokens(dz, r)
            factors = ctx.scale / LOG2_E, 1 / LOG2_E, 1.0  # keys met queries times scale log2 e
            for grad, z, factor in zip(grads, sums, factors, strict=True):
                grad[at] = z.mul_(factor).view_as(grad[at])
        return None, None, *grads
