"""Attention along sorted orders (see `functional.sorted`) with gradients by hand; weights are not kept.

A few rows of batch x heads are worked on at a time, in memory that is reused: blocks of sorted queries are multiplied by slices of sorted
keys. All rounds add to the same sums, and the backward recomputes weights from the final log-sum-exp.

A pair that is not allowed has FAR taken from its score. How many conditions it fails is counted in floating point, in
the tensor that the product of queries and keys is then added to: no truth values, no selections, no fresh tensors.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.fast.cpu.blocks import Cut, Workspace, cut, tiles
from regard.functional.rows import LOG2_E, Form, wide_type
from regard.functional.sorted import Window

EXACT = 1 << 22  # the last place up to which float32 tells halves apart
FAR = 1e30  # a few times that is a float32 still


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    group: Int[Tensor, "B H R T"],
    window: Window,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
    form: Form,
) -> Float[Tensor, "B H T V"]:
    how = cut(form, tile=32)
    source, place = _placed(group.flatten(0, 1), window)
    valid = None if mask.valid is None else mask.valid[:, None].expand(q.shape[:3]).flatten(0, 1)
    pairwise = None if mask.pairwise is None else mask.pairwise.expand(*q.shape[:2], -1, -1)
    reach = _reach(window, how.tile)
    y = _SortedAttention.apply(
        *(z.to(v.dtype).flatten(0, 1).contiguous() for z in (q, k, v)),
        source,
        place,
        valid,
        _may_see_itself(v, mask) if exclude_self else None,
        pairwise,
        reach,
        Rules(exclude_self, count_once, mask.causal and not reach.only_earlier),
        1 / math.sqrt(q.shape[-1]) if scale is None else scale,
        how,
    )
    return y.unflatten(0, q.shape[:2])


class Reach(NamedTuple):
    """|place_i + shift - place_j| <= reach. In blocks of sorted tokens: keys at most `before` blocks back and `after` blocks on."""

    shift: float
    reach: float
    block: int
    before: int
    after: int
    only_earlier: bool  # no query reaches a later token


def _reach(window: Window, tile: int) -> Reach:
    size, _, least, most = window
    block = size if size > 1 else max(1, min(tile, most))
    before, after = (-(-max(0, n) * size // block) for n in (most, -least))
    shift, reach = -(least + most) / 2, (most - least) / 2
    return Reach(shift, reach, block, before, after, size == 1 and window.gap > 0 and least >= 0)


def _placed(
    group: Int[Tensor, "N R T"], window: Window
) -> tuple[Int[Tensor, "N R T"], Float[Tensor, "N R T"]]:
    """The token of each rank, and each token's place: rank // size, and a gap more for each group before."""
    ordered, source = _sorted(group)
    T = group.shape[-1]
    line = (torch.arange(T) // window.size).expand_as(source)
    gap = max(window.most, -window.least) + 1 if window.gap else 0
    if gap:
        new = ordered[..., 1:] != ordered[..., :-1]
        line = line + gap * F.pad(new, (1, 0)).cumsum(-1)
    line = line.to(torch.float32 if T * (gap + 1) < EXACT else torch.float64)
    return source, torch.empty_like(source, dtype=line.dtype).scatter_(-1, source, line)


def _sorted(group: Int[Tensor, "N R T"]) -> tuple[Tensor, Tensor]:
    """group.sort(stable=True). One row of 32-bit numbers is sorted by its digits, six times as fast."""
    if group.numel() == 0:
        return group.sort(dim=-1, stable=True)
    T, least = group.shape[-1], int(group.min())
    span, rows = int(group.max()) - least + 1, group.numel() // T
    if rows * span > torch.iinfo(torch.int32).max:
        return group.sort(dim=-1, stable=True)
    row = torch.arange(rows).view(*group.shape[:-1], 1)
    keys = (group + (row * span - least)).int()
    ordered, source = keys.flatten().sort(stable=True)
    return ordered.view(group.shape), source.view(group.shape) - row * T


class Rules(NamedTuple):
    exclude_self: bool
    count_once: bool
    causal: bool


class SortedRows:
    """Some rows of batch x heads: all their tokens, numbered through, in the sorted order of each round.

    In blocks of c tokens: `before` empty blocks, the blocks of a row, `after` empty ones, then the next row. No query
    sees an absent key, and the token of an empty place sees nothing.
    """

    def __init__(
        self,
        rows: slice,
        source: Int[Tensor, "N R T"],
        place: Float[Tensor, "N R T"],
        valid: Bool[Tensor, "N T"] | None,
        pairwise: Bool[Tensor, "B H T T"] | None,
        reach: Reach,
        rules: Rules,
        work: Workspace,
        blocks_at_once: int,
    ):
        self.rows, self.pairwise, self.reach, self.rules = rows, pairwise, reach, rules
        self.work, self.blocks_at_once, self.c = work, blocks_at_once, reach.block
        source, place = source[rows].transpose(0, 1), place[rows].transpose(0, 1)
        self.R, n, T = source.shape
        self.ahead, self.slices = reach.before * self.c, reach.before + 1 + reach.after
        ends = self.ahead, -T % self.c + reach.after * self.c
        length = T + sum(ends)
        self.total = n * (length // self.c)
        row = torch.arange(n, device=source.device)[:, None]
        self.tokens = (F.pad(source, ends) + T * row).flatten(1)
        ranks = torch.arange(T, device=row.device) + self.ahead
        rank = torch.empty_like(source).scatter_(2, source, ranks.expand_as(source))
        first = torch.arange(self.R)[:, None, None] * (n * length)
        self.places = (rank + length * row + first).flatten(1).t().contiguous()
        queries = place + reach.shift
        keys = place if valid is None else place.masked_fill(~valid[rows], torch.inf)
        self.queries, self.keys = queries.flatten(1), keys.flatten(1)
        self.sorted_queries, self.sorted_keys = (
            F.pad(z.gather(2, source), ends, value=nowhere).flatten(1)
            for z, nowhere in ((queries, -torch.inf), (keys, torch.inf))
        )

    def tiles(self) -> Iterator["SortedTile"]:
        """Tiles of all rounds. Places are those of this round and, if pairs count once, of the rounds before."""
        for r in range(self.R):
            tokens, before = self.tokens[r], r if self.rules.count_once else 0
            queries, keys = (
                [own[r]] + [z[s].index_select(0, tokens) for s in range(before)]
                for own, z in ((self.sorted_queries, self.queries), (self.sorted_keys, self.keys))
            )
            queries = [z[self.ahead :].view(-1, self.c, 1) for z in queries]
            keys = [z.unfold(0, self.slices * self.c, self.c)[:, None] for z in keys]
            for some in tiles(self.total - self.slices + 1, self.blocks_at_once):
                yield SortedTile(self, r, some, [z[some] for z in queries], [z[some] for z in keys])

    def results(self, name: str, like: Tensor, width: int) -> Float[Tensor, "R G c V"]:
        """Memory for a result of each sorted token in each round, block by block."""
        return self.work(name, like, self.R, self.total, self.c, width)

    def of_tokens(
        self, results: Float[Tensor, "R G c V"], dtype: torch.dtype
    ) -> Float[Tensor, "nT V"]:
        """Each token's results of all rounds, added."""
        rows = results.flatten(0, 2).to(dtype)
        if self.R == 1:
            return rows.index_select(0, self.places.flatten())
        return F.embedding_bag(self.places, rows, mode="sum")

    def each_of_tokens(self, results: Float[Tensor, "R G c"]) -> Float[Tensor, "nT R"]:
        return results.flatten()[self.places]


class SortedTile:
    """g blocks of c queries, each with the w keys of its window, in round r."""

    def __init__(
        self, of: SortedRows, r: int, some: slice, queries: list[Tensor], keys: list[Tensor]
    ):
        self.of, self.r, self.windows, self.work, self.c = of, r, some, of.work, of.c
        self.g, self.w = some.stop - some.start, of.slices * of.c
        self.blocks = r, slice(some.start + of.reach.before, some.stop + of.reach.before)
        first = some.start * of.c
        self.query_tokens = of.tokens[r, first + of.ahead :][: self.g * of.c]
        self.key_tokens = of.tokens[r, first : (some.stop + of.slices - 1) * of.c]
        self.query_places, self.key_places = queries, keys

    def of_queries(self, name: str, z: Float[Tensor, "nT K"]) -> Float[Tensor, "g c K"]:
        return self.work.rows(name, z, self.query_tokens).view(self.g, self.c, -1)

    def of_keys(self, name: str, z: Float[Tensor, "nT K"]) -> Float[Tensor, "g w K"]:
        """Windows overlap, and are views of what is fetched once."""
        rows = self.work.rows(name, z, self.key_tokens)
        return rows.unfold(0, self.w, self.c).transpose(1, 2)

    def scores(
        self, q: Float[Tensor, "g c K"], k: Float[Tensor, "g w K"], wide: torch.dtype
    ) -> Float[Tensor, "g c w"]:
        """q k^T, far below all others where a pair is not allowed."""
        far = self._far()
        if far.dtype == q.dtype:
            return far.baddbmm_(q, k.mT, beta=-FAR)
        return self.work.product("products", q, k.mT).to(wide).sub_(far, alpha=FAR)

    def add_to_keys(
        self, to: Float[Tensor, "R G c K"], a: Float[Tensor, "g c w"], b: Float[Tensor, "g c K"]
    ) -> None:
        """a^T b, each slice of a window to its own block of sorted keys; the last slice is the first to reach a block."""
        to, last, start = to[self.r], self.of.slices - 1, self.windows.start
        if start == 0:
            to[:last] = 0
        for s in range(last, -1, -1):
            some = a[:, :, s * self.c : (s + 1) * self.c].transpose(1, 2)
            to[start + s : start + s + self.g].baddbmm_(some, b, beta=int(s < last))

    def _far(self) -> Float[Tensor, "g c w"]:
        """Number of the conditions that a pair fails: near in this round, in no earlier one, no later token, .."""
        rules, reach = self.of.rules, self.of.reach
        earlier = range(1, len(self.query_places))
        nearest = None
        for s in earlier:
            distance = self._distance(s, "nearest" if nearest is None else "far")
            nearest = distance if nearest is None else torch.minimum(nearest, distance, out=nearest)
        far = self._distance(0, "far").gt_(reach.reach)
        if nearest is not None:
            far += nearest.le_(reach.reach)
        if rules.exclude_self:
            far.diagonal(self.of.ahead, 1, 2).fill_(1)
        if rules.causal or self.of.pairwise is not None:
            i = self.query_tokens.view(-1, self.c, 1)
            j = self.key_tokens.unfold(0, self.w, self.c)[:, None]
            if rules.causal:
                far += j > i
            if self.of.pairwise is not None:
                far += ~self._pairs_at(self.of.pairwise, i, j)
        return far

    def _distance(self, s: int, name: str) -> Float[Tensor, "g c w"]:
        queries, keys = self.query_places[s], self.key_places[s]
        out = self.work(name, queries, self.g, self.c, self.w)
        return torch.sub(keys, queries, out=out).abs_()

    def _pairs_at(self, pairwise: Bool[Tensor, "B H T T"], i: Tensor, j: Tensor) -> Tensor:
        H, T = pairwise.shape[1:3]
        n = self.of.rows.start + i // T
        return pairwise[n // H, n % H, i % T, j % T]


def sorted_rows(
    source: Int[Tensor, "N R T"],
    place: Float[Tensor, "N R T"],
    valid: Bool[Tensor, "N T"] | None,
    pairwise: Bool[Tensor, "B H T T"] | None,
    reach: Reach,
    rules: Rules,
    how: Cut,
    like: Float[Tensor, "N T V"],
) -> Iterator[SortedRows]:
    """Number of rows that fit at once: scores of their blocks into half of `cut.room`, their results into an eighth."""
    N, R, T = source.shape
    room, work = how.room // (2 * like.element_size()), Workspace()
    at_once = max(1, room // (reach.block**2 * (reach.before + 1 + reach.after)))
    few = room // max(1, 4 * R * T * like.shape[2])
    for rows in tiles(N, max(1, min(at_once // max(1, -(-T // reach.block)), few))):
        yield SortedRows(
            rows, source, place, valid, pairwise, reach, rules, work, blocks_at_once=at_once
        )


def _may_see_itself(v: Float[Tensor, "B H T V"], mask: Mask) -> Bool[Tensor, "N T"]:
    may = torch.ones(v.shape[:3], dtype=torch.bool, device=v.device)
    if mask.pairwise is not None:
        may = may & mask.pairwise.diagonal(dim1=2, dim2=3)
    if mask.valid is not None:
        may = may & mask.valid[:, None]
    return may.flatten(0, 1)


class _SortedAttention(torch.autograd.Function):
    """B and H are one axis N. Scores are in base 2, as exp2 is the exponential that is fast for all numbers.

    References of the exponents are one for all rounds, whose sums can so be added.
    """

    @staticmethod
    def forward(ctx, q, k, v, source, place, valid, alone, pairwise, reach, rules, scale, how):
        y, lse = torch.empty_like(v), q.new_empty(v.shape[:2], dtype=wide_type(q))
        for some in sorted_rows(source, place, valid, pairwise, reach, rules, how, v):
            queries, keys, values = (z[some.rows].flatten(0, 1) for z in (q, k, v))
            queries = queries * (scale * LOG2_E)
            top = None if _small(queries, keys) else _highest(some, queries, keys)
            sums = some.results("sums", v, v.shape[2])
            masses = some.results("masses", lse, 1)[..., 0]
            for tile in some.tiles():
                scores = tile.scores(
                    tile.of_queries("q", queries), tile.of_keys("k", keys), lse.dtype
                )
                if top is not None:
                    scores.sub_(tile.of_queries("top", top))
                weights = scores.exp2_()
                masses[tile.blocks] = weights.sum(-1)
                values_of = tile.of_keys("k", values)
                sums[tile.blocks].baddbmm_(weights.to(v.dtype), values_of, beta=0)
            mixed = some.of_tokens(sums, lse.dtype)
            mass = some.each_of_tokens(masses).sum(1, keepdim=True)
            has_key = mass > 0
            mixed.div_(torch.where(has_key, mass, 1))
            total = mass.log2() if top is None else mass.log2() + top
            if alone is not None:  # sees itself, as it sees nothing else
                itself = ~has_key & alone[some.rows].flatten()[:, None]
                mixed.addcmul_(itself.to(mixed.dtype), values)
            lse[some.rows] = torch.where(has_key, total, torch.inf).view(-1, lse.shape[1])
            y[some.rows] = mixed.view(-1, *v.shape[1:]).to(y.dtype)
        ctx.save_for_backward(q, k, v, y, lse, source, place, valid, alone, pairwise)
        ctx.chosen = reach, rules, scale, how
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, lse, source, place, valid, alone, pairwise = ctx.saved_tensors
        (reach, rules, scale, how), wide, dy = ctx.chosen, lse.dtype, dy.contiguous()
        grads = [torch.empty_like(z) for z in (q, k, v)]
        for some in sorted_rows(source, place, valid, pairwise, reach, rules, how, v):
            rows = some.rows
            queries, keys, values, outer = (z[rows].flatten(0, 1) for z in (q, k, v, dy))
            queries = queries * (scale * LOG2_E)
            total = lse[rows].flatten()[:, None].clamp(max=FAR)
            delta = (outer * y[rows].flatten(0, 1)).sum(-1, keepdim=True, dtype=wide)
            dq, dk, dv = (
                some.results(name, z, z.shape[2])
                for name, z in zip(("dq", "dk", "dv"), grads, strict=True)
            )
            for tile in some.tiles():
                a, b = tile.of_queries("q", queries), tile.of_keys("k", keys)
                o, x = tile.of_queries("dy", outer), tile.of_keys("v", values)
                weights = tile.scores(a, b, wide).sub_(tile.of_queries("total", total)).exp2_()
                dscores = tile.work.product("dscores", o, x.mT).to(wide)
                dscores.sub_(tile.of_queries("delta", delta)).mul_(weights)
                dscores = dscores.to(q.dtype)
                dq[tile.blocks].baddbmm_(dscores, b, beta=0)
                tile.add_to_keys(dk, dscores, a)
                tile.add_to_keys(dv, weights.to(v.dtype), o)
            found = [some.of_tokens(z, wide) for z in (dq, dk, dv)]
            found[0].mul_(scale)
            found[1].mul_(1 / LOG2_E)  # of queries times scale log2 e
            if alone is not None:
                itself = (lse[rows] == torch.inf) & alone[rows]
                found[2].addcmul_(itself.flatten()[:, None].to(wide), outer)
            for grad, z in zip(grads, found, strict=True):
                grad[rows] = z.view(-1, *grad.shape[1:]).to(grad.dtype)
        return *grads, *[None] * 9


def _small(q: Float[Tensor, "nT K"], k: Float[Tensor, "nT K"]) -> bool:
    """True if |q| |k| keeps all exponents so small that they need no reference."""
    bound = math.prod(float(z.square().sum(-1, dtype=wide_type(z)).amax().sqrt()) for z in (q, k))
    return bound < math.log2(torch.finfo(q.dtype).max) / 2


def _highest(
    some: SortedRows, q: Float[Tensor, "nT K"], k: Float[Tensor, "nT K"]
) -> Float[Tensor, "nT 1"]:
    """The highest score of each query; 0 where it sees nothing."""
    wide = wide_type(q)
    highest = some.results("masses", q.new_empty(0, dtype=wide), 1)[..., 0]
    for tile in some.tiles():
        scores = tile.scores(tile.of_queries("q", q), tile.of_keys("k", k), wide)
        highest[tile.blocks] = scores.amax(-1)
    top = some.each_of_tokens(highest).amax(1, keepdim=True)
    return torch.where(top > -FAR / 2, top, 0)
