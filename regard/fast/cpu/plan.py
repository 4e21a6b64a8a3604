"""A pattern and a mask cut into tiles for `tile_attention`.

Queries that share keys are one tile: neighbours for windows and blocks, queries a stride apart for strides. A tile has
the keys that its pattern names, each once, under the exact mask. Terms of a union that need different tiles are parts
of their own. Tiles that are equal but for a shift become one batch of small tiles; the others are joined to larger
ones. A plan that depends on no tensor of a mask is kept for its pattern, length and tile.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import accumulate, groupby, pairwise

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.fast.cpu.tiles import (
    HeadPlan,
    Tile,
    TileBatch,
    TileKeys,
    TileMask,
    TilePlan,
    num_keys,
    positions,
)
from regard.fast.ranges import disjoint, period, ranges, scattered
from regard.functional.global_rows import Prefix
from regard.functional.patterns import All, Pattern, PerHead, Scattered, Union


@dataclass(frozen=True)
class _Facts:
    """Everything that a plan depends on, except the tensors of a mask."""

    key: Hashable  # the pattern by value
    pattern: Pattern = field(compare=False)
    causal: bool
    H: int
    T: int
    tile: int
    rows: int


def plan_tiles(
    pattern: Pattern,
    mask: Mask,
    H: int,
    T: int,
    tile: int,
    *,
    prefix: Prefix | None = None,
    rows: int,
) -> TilePlan:
    """The tiles of all heads. rows: queries that a tile of a batch has at least."""
    facts = _Facts(_key(pattern), pattern, mask.causal, H, T, tile, rows)
    if prefix is None and mask.valid is None and mask.pairwise is None:
        return _kept(facts)
    return _plan(facts, mask, prefix)


def _key(pattern: Pattern) -> Hashable:
    """Equal for patterns that are equal, tables of random blocks included."""
    if isinstance(pattern, PerHead):
        return tuple(_key(one) for one in pattern.heads)
    return tuple(
        (one.size, one.table.shape, one.table.numpy().tobytes())
        if isinstance(one, Scattered)
        else one
        for one in pattern.terms
    )


@lru_cache(maxsize=128)
def _kept(facts: _Facts) -> TilePlan:
    with torch.inference_mode(False):
        return _plan(facts, Mask(causal=facts.causal), None)


def _plan(facts: _Facts, mask: Mask, prefix: Prefix | None) -> TilePlan:
    H, pattern = facts.H, facts.pattern
    if not isinstance(pattern, PerHead):
        return [_plan_heads(pattern, slice(0, H, 1), facts, mask, prefix)]
    return [
        _plan_heads(one, heads, facts, mask, prefix)
        for one in dict.fromkeys(pattern.heads)
        for heads in _slices([h for h, other in enumerate(pattern.heads) if other == one])
    ]


def _slices(heads: list[int]) -> list[slice]:
    """One slice where the heads are evenly spaced, or one for each run of neighbours."""
    if len({b - a for a, b in pairwise(heads)}) <= 1:
        step = heads[1] - heads[0] if len(heads) > 1 else 1
        return [slice(heads[0], heads[-1] + 1, step)]
    runs = groupby(enumerate(heads), key=lambda pair: pair[1] - pair[0])
    found = [[h for _, h in run] for _, run in runs]
    return [slice(run[0], run[-1] + 1, 1) for run in found]


def _plan_heads(
    pattern: Pattern, heads: slice, facts: _Facts, mask: Mask, prefix: Prefix | None
) -> HeadPlan:
    dense = facts.T <= facts.tile
    groups = [pattern] if dense else _groups(pattern)
    allowed = Allowance(facts, groups, mask, prefix, heads, _marks(mask))
    batches = list(_prefix_batches(allowed))
    for part, group in enumerate([All()] if dense else groups, start=allowed.first):
        batches += _batches(group, part, allowed)
    covered = sum(b.repeats * len(b.tile.rows) for b in batches if b.tile.part == 0)
    return HeadPlan(heads, batches, covered == facts.T)


def _marks(mask: Mask) -> list[list[int]]:
    """Prefix counts over the tokens of those that are absent, and of those that are global, in any row."""
    absent = None if mask.valid is None else ~mask.valid
    given = (marks for marks in (absent, mask.global_tokens) if marks is not None)
    return [[0, *accumulate(marks.any(0).tolist())] for marks in given]


def _groups(pattern: Pattern) -> list[Pattern]:
    """The terms of the pattern, those that need the same tiles in one union; global tokens first."""

    def kind(term: Pattern) -> tuple[bool, bool, int, int]:
        share = term.size if isinstance(term, Scattered) else 0
        return term.span is None, term.reach is None, term.lanes, share

    return [Union(tuple(group)) for _, group in groupby(sorted(pattern.terms, key=kind), key=kind)]


def _prefix_batches(allowed: "Allowance") -> Iterator[TileBatch]:
    prefix, facts = allowed.prefix, allowed.facts
    if prefix is None:
        return
    for rows in _rows(range(facts.T), _many(facts)):
        tile = Tile(rows, range(prefix.k.shape[2]), 0, prefix=True)
        is_open = allowed.mask.global_tokens is None
        yield TileBatch(tile, _everything if is_open else partial(allowed.mask_of, tile))


def _batches(group: Pattern, part: int, allowed: "Allowance") -> list[TileBatch]:
    facts, T, tile = allowed.facts, allowed.facts.T, allowed.facts.tile

    def tiles(all_rows: Iterable[range]) -> list[Tile]:
        found = (Tile(rows, _keys(group, rows, facts), part) for rows in all_rows)
        return [one for one in found if num_keys(one.cols)]

    def each(some: Iterable[Tile]) -> list[TileBatch]:
        return [allowed.batch(one) for one in some]

    term = group.terms[0]
    if isinstance(group, All):
        return each(tiles(_rows(range(T), tile)))
    if term.span is not None:
        return each(tiles(_span_rows(group, facts)))
    if isinstance(term, Scattered):
        size = min(tile, term.size * max(1, tile // 4 // term.size))
        batches, left = _equal(tiles(_rows(range(T), size)), allowed)
        return batches + each(left)
    batches, left = _equal(tiles(_shared_rows(group, T, _small(group, facts))), allowed)
    return batches + each(tiles(_joined([one.rows for one in left], _large(group, tile))))


def _keys(group: Pattern, rows: range, facts: _Facts) -> TileKeys:
    """The keys that the pattern names for these queries, each once."""
    end = rows[-1] + 1 if facts.causal else facts.T
    named = [r for term in group.terms for r in ranges(term, rows, facts.T)]
    named = disjoint([range(r.start, min(r.stop, end), r.step) for r in named])
    cols: TileKeys = named[0] if len(named) == 1 else tuple(named)
    for term in group.terms:
        if isinstance(term, Scattered):
            some = scattered(term, rows, facts.T)
            some = some.masked_fill(_inside(some, named), -1)
            both = positions(cols).expand(facts.H, -1), some.expand(facts.H, -1)
            cols = torch.cat(both, dim=-1)
    return cols


def _rows(places: range, size: int) -> list[range]:
    return [places[start : start + size] for start in range(0, len(places), size)]


def _shared_rows(group: Pattern, T: int, size: int) -> Iterator[range]:
    """Queries that share keys, `size` at a time; neighbouring residues one after the other."""
    step = group.terms[0].lanes
    for start in range(0, -(-T // step), size):
        for residue in range(min(step, T)):
            rows = range(residue, T, step)[start : start + size]
            if len(rows):
                yield rows


def _span_rows(group: Pattern, facts: _Facts) -> list[range]:
    """Global tokens, which see every key, and long tiles of what is between them, which see only these."""
    spans = [term.span for term in group.terms if term.span is not None]
    T = facts.T
    borders = sorted({0, T, *(min(b, T) for span in spans for b in (span.start, span.stop))})
    return [
        rows
        for a, b in pairwise(borders)
        for rows in _rows(range(a, b), facts.tile if any(a in s for s in spans) else _many(facts))
    ]


def _many(facts: _Facts) -> int:
    """Rows of a tile with few keys."""
    return 8 * facts.tile


def _small(group: Pattern, facts: _Facts) -> int:
    """Rows of a tile of a batch: so few that little of it is masked, so many that a matrix product is efficient."""
    each = period(group.terms)
    if each is None or each > _many(facts):
        return facts.tile
    return each * -(-facts.rows // each)


def _large(group: Pattern, tile: int) -> int:
    """Rows of a tile without a batch: fewer where keys are few, so that it is not mostly masked."""
    if group.reach is None:
        return max(1, tile // 2)
    return max(1, tile // 4, min(tile, 1 + group.reach // group.terms[0].lanes))


def _joined(left: list[range], size: int) -> Iterator[range]:
    """The same queries in tiles of up to `size`, neighbours joined."""
    yield from (r for r in left if r.step > 1)
    plain = [r for r in left if r.step == 1]
    starts = [0, *accumulate(len(r) for r in plain)]
    runs = groupby(zip(starts, plain, strict=False), key=lambda pair: pair[1].start - pair[0])
    for _, run in runs:
        rows = [r for _, r in run]
        yield from _rows(range(rows[0].start, rows[-1].stop), size)


def _equal(tiles: list[Tile], allowed: "Allowance") -> tuple[list[TileBatch], list[Tile]]:
    """Batches of neighbours in the list that are equal and equally far apart, and all other tiles."""
    batches, left, n = list[TileBatch](), list[Tile](), 0
    kinds = [allowed.kind(tile) for tile in tiles]
    while n < len(tiles):
        end = n + 1
        shift = tiles[end].rows.start - tiles[n].rows.start if end < len(tiles) else 0
        while (
            kinds[n] is not None
            and end < len(tiles)
            and kinds[end] == kinds[n]
            and tiles[end].rows.start == tiles[n].rows.start + (end - n) * shift
        ):
            end += 1
        if end - n > 1:
            batches.append(allowed.batch_of(tiles[n:end], shift))
        else:
            left += tiles[n:end]
        n = end
    return batches, left


class _KeptMask:
    """A mask that is the same in every call."""

    def __init__(self, allowed: Bool[Tensor, "h n 1 s"]):
        self._allowed = None if allowed.all() else allowed
        self._masks: dict[torch.dtype, TileMask] = {}

    def __call__(self, dtype: torch.dtype) -> TileMask | None:
        if self._allowed is not None and dtype not in self._masks:
            self._masks[dtype] = TileMask.of(self._allowed, dtype)
        return self._masks.get(dtype)


def _everything(dtype: torch.dtype) -> None:
    """The mask of a tile where all pairs are allowed."""


def _inside(cols: Int[Tensor, "h s"], ranges: list[range]) -> Bool[Tensor, "h s"]:
    inside = torch.zeros_like(cols, dtype=torch.bool)
    for r in ranges:
        inside |= (cols >= r.start) & (cols < r.stop) & ((cols - r.start) % r.step == 0)
    return inside


@dataclass(frozen=True, eq=False)
class Allowance:
    """The pairs that a tile counts: those of its group of terms that no earlier group has, and the mask allows."""

    facts: _Facts
    groups: list[Pattern]
    mask: Mask
    prefix: Prefix | None
    heads: slice
    marks: list[list[int]]
    _last: dict[Hashable, TileMask] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The part of the first group; prefix keys are a part before it."""
        return int(self.prefix is not None)

    def batch(self, tile: Tile) -> TileBatch:
        """A batch of this tile alone, without a mask if all of its pairs are known to be allowed."""
        is_open = not self._reads_values(tile) and bool(self(tile).all())
        return TileBatch(tile, _everything if is_open else partial(self.mask_of, tile))

    def batch_of(self, tiles: list[Tile], shift: int) -> TileBatch:
        """One batch of tiles of one kind."""
        first = tiles[0]
        if not isinstance(first.cols, Tensor):
            return self.batch(first)._replace(repeats=len(tiles), shift=shift)
        cols = torch.stack([positions(tile.cols) for tile in tiles], dim=1)
        seen = [self._same_for_all(tile) for tile in tiles]
        kept = _KeptMask(torch.stack([some for some in seen if some is not None], dim=1))
        return TileBatch(first._replace(cols=cols), kept, len(tiles), shift)

    def mask_of(self, tile: Tile, dtype: torch.dtype) -> TileMask:
        """The tile's mask, made once for neighbours of one kind."""
        kind = None if isinstance(tile.cols, Tensor) else self.kind(tile)
        if kind is None:
            return TileMask.of(self(tile), dtype)
        if (kind, dtype) not in self._last:
            self._last.clear()
            self._last[kind, dtype] = TileMask.of(self(tile), dtype)
        return self._last[kind, dtype]

    def kind(self, tile: Tile) -> Hashable | None:
        """Equal for tiles that can be one batch; None where a mask or the pattern makes a tile differ from its neighbours."""
        if tile.prefix or self._reads_values(tile):
            return None
        if isinstance(tile.cols, Tensor):
            same = self._same_for_all(tile)
            return None if same is None else (len(tile.rows), tile.cols.shape)
        terms = self._terms(tile)
        each = period(tuple(term for some in terms for term in some))
        if each is None:
            return None
        cols = (tile.cols,) if isinstance(tile.cols, range) else tile.cols
        start, rows = tile.rows.start, tile.rows
        return (
            (tuple(terms), start % each, len(rows), rows.step),
            tuple((r.start - start, len(r), r.step) for r in cols),
        )

    def _same_for_all(self, tile: Tile) -> Bool[Tensor, "h 1 s"] | None:
        """The keys that every query of the tile sees, by head; None where queries differ, or that is unknown."""
        if self._reads_values(tile):
            return None
        allowed = self(tile)[0]
        first = allowed[:, :1]
        return first if bool((allowed == first).all()) else None

    def __call__(self, tile: Tile) -> Bool[Tensor, "b h t s"]:
        rows, cols = positions(tile.rows), positions(tile.cols)
        i, j = (
            rows[None, None, :, None],
            cols.view(1, -1, 1, cols.shape[-1]),
        )
        if tile.prefix:
            return self._prefix_pairs(rows, i)
        own, *earlier = self._terms(tile)
        pairs = Union(own).contains(i, j)
        for terms in earlier:
            pairs = pairs & ~Union(terms).contains(i, j)
        if j.shape[1] > 1:
            pairs = pairs & (j >= 0)
        if self.mask.causal:
            pairs = pairs & (j <= i)
        if self._reads_values(tile):
            pairs = self._restrict(pairs, rows, j)
        return pairs[:, self.heads] if pairs.shape[1] > 1 else pairs

    def _terms(self, tile: Tile) -> list[tuple[Pattern, ...]]:
        """The tile's own terms, and those of each earlier group, but for global tokens that are not in it."""

        def far(term: Pattern) -> bool:
            if term.span is None or isinstance(tile.cols, Tensor):
                return False
            low, high = _hull(tile.cols)
            below = tile.rows[-1] < term.span.start and high < term.span.start
            return below or (tile.rows.start >= term.span.stop and low >= term.span.stop)

        own = tile.part - self.first
        some = [self.groups[own], *self.groups[:own]]
        kept = [tuple(term for term in group.terms if not far(term)) for group in some]
        return [kept[0], *(terms for terms in kept[1:] if terms)]

    def _reads_values(self, tile: Tile) -> bool:
        """True if the mask depends on tensor values in this tile."""
        if self.mask.pairwise is not None:
            return True
        for marks in self.marks:
            if isinstance(tile.cols, Tensor):
                return True
            low, high = _hull(tile.cols)
            if marks[high + 1] > marks[low]:
                return True
        return False

    def _restrict(self, pairs: Tensor, rows: Tensor, j: Tensor) -> Tensor:
        mask, at = self.mask, j[0, :, 0].clamp(min=0)
        if mask.global_tokens is not None:  # they are prefix keys
            pairs = pairs & ~mask.global_tokens[:, at][:, :, None]
        if mask.valid is not None:
            pairs = pairs & mask.valid[:, at][:, :, None]
        if mask.pairwise is not None:
            pairs = pairs & _columns(mask.pairwise[:, :, rows], at[None])
        return pairs

    def _prefix_pairs(self, rows: Tensor, i: Tensor) -> Bool[Tensor, "b h t E"]:
        assert self.prefix is not None
        at, present = self.prefix.at, self.prefix.present
        seen = present[:, None, None].expand(-1, 1, len(rows), -1)
        if self.mask.causal:
            seen = seen & (at[:, None, None] <= i)
        if self.mask.pairwise is not None:
            pairs = _columns(self.mask.pairwise[:, :, rows], at.clamp(min=0)[:, None])
            seen = seen & (pairs | (at < 0)[:, None, None])
            seen = seen[:, self.heads] if seen.shape[1] > 1 else seen
        return seen


def _hull(cols: range | tuple[range, ...]) -> tuple[int, int]:
    ranges = (cols,) if isinstance(cols, range) else cols
    return min(r[0] for r in ranges), max(r[-1] for r in ranges)


def _columns(
    pairwise: Bool[Tensor, "b h t S"], at: Int[Tensor, "b2 h2 s"]
) -> Bool[Tensor, "b3 h3 t s"]:
    b, h = max(pairwise.shape[0], at.shape[0]), max(pairwise.shape[1], at.shape[1])
    index = at[:, :, None].expand(b, h, pairwise.shape[2], -1)
    return pairwise.expand(b, h, -1, -1).gather(3, index)
