"""A pattern and a mask cut into tiles for `tile_attention`.

Queries are taken in tiles that share keys: neighbours for windows and blocks, queries a stride apart for strides. A
tile meets the keys that its pattern names, each once, under the exact mask. Terms of a union that want different
tiles are parts of their own. Tiles that look alike, but for a shift, become one batch of small tiles; the others are
joined to larger ones. A plan that no mask's values enter is kept for its pattern and length.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.functional.sparse.patterns import All, Pattern, PerHead, Union, disjoint
from regard.functional.sparse.tiles import Batch, HeadPlan, Keys, Pairs, Plan, Tile, positions

TILE = 128  # queries
LONG = 8  # tiles that a tile of queries is long which meets the few keys of global tokens
RUN = 4  # tiles of a batch at least


class Ahead(NamedTuple):
    """Keys before those of the tokens: learned ones, or global tokens brought to where every query meets them."""

    size: int
    position: Int[Tensor, "B E"] | None = None  # of global tokens; -1: learned
    present: Bool[Tensor, "B E"] | None = None  # None: all, and every query sees them


def plan_tiles(
    pattern: Pattern,
    mask: Mask,
    H: int,
    T: int,
    device: torch.device,
    *,
    ahead: Ahead | None = None,
    rows: int,
) -> Plan:
    """The tiles of all heads. rows: queries that a tile of a batch has at least."""
    facts = _Facts(pattern, mask.causal, H, T, device, rows)
    tensors = (mask.valid, mask.pairwise, mask.global_tokens, mask.shift, ahead and ahead.present)
    if torch.compiler.is_compiling() or any(tensor is not None for tensor in tensors):
        return _plan(facts, mask, ahead)
    return _kept(facts, 0 if ahead is None else ahead.size)


@dataclass(frozen=True)
class _Facts:
    """All that a plan without the values of masks depends on."""

    pattern: Pattern
    causal: bool
    H: int
    T: int
    device: torch.device
    rows: int


@lru_cache(maxsize=128)
def _kept(facts: _Facts, ahead: int) -> Plan:
    with torch.inference_mode(False):
        return _plan(facts, Mask(causal=facts.causal), Ahead(ahead) if ahead else None)


def _plan(facts: _Facts, mask: Mask, ahead: Ahead | None) -> Plan:
    H = facts.H
    if not isinstance(facts.pattern, PerHead):
        return [_plan_heads(facts.pattern, slice(0, H, 1), facts, mask, ahead)]
    return [
        _plan_heads(one, heads, facts, mask, ahead)
        for one in dict.fromkeys(facts.pattern.heads)
        for heads in _slices([h for h, other in enumerate(facts.pattern.heads) if other == one])
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
    pattern: Pattern, heads: slice, facts: _Facts, mask: Mask, ahead: Ahead | None
) -> HeadPlan:
    T = facts.T
    every_pair = mask.global_tokens is not None and (ahead is None or ahead.present is None)
    dense = every_pair or T <= TILE
    groups = [pattern] if dense else _groups(pattern)
    allowed = Allowance(groups, mask, ahead, heads, facts.device, _marks(mask, facts.device))
    batches = list(_front_batches(T, ahead, allowed))
    for part, group in enumerate([All()] if dense else groups, start=allowed.first):
        batches += _batches(group, part, facts, allowed)
    covered = sum(b.repeats * len(b.tile.rows) for b in batches if b.tile.part == 0)
    return HeadPlan(heads, batches, covered == T)


def _marks(mask: Mask, device: torch.device) -> list[list[int] | None]:
    """How many absent, and how many global, tokens of any row stand before each; None where that is not known here."""
    absent = None if mask.valid is None else ~mask.valid
    given = [marks for marks in (absent, mask.global_tokens) if marks is not None]
    if device.type != "cpu" or torch.compiler.is_compiling():
        return [None for _ in given]
    return [[0, *accumulate(marks.any(0).tolist())] for marks in given]


def _groups(pattern: Pattern) -> list[Pattern]:
    """The terms of the pattern, those that want the same tiles in one union; global tokens first."""

    def kind(term: Pattern) -> tuple[bool, bool, int, int]:
        return term.span is None, term.reach is None, term.step, term.share or 0

    return [Union(tuple(group)) for _, group in groupby(sorted(pattern.terms, key=kind), key=kind)]


def _front_batches(T: int, ahead: Ahead | None, allowed: "Allowance") -> Iterator[Batch]:
    if ahead is None:
        return
    for rows in _rows(range(T), LONG * TILE):
        tile = Tile(rows, range(ahead.size), 0, front=True)
        yield Batch(tile, _everything if ahead.present is None else partial(allowed.pairs, tile))


def _batches(group: Pattern, part: int, facts: _Facts, allowed: "Allowance") -> list[Batch]:
    H, T = facts.H, facts.T

    def tile(rows: range) -> Tile | None:
        end = rows[-1] + 1 if facts.causal else T
        ranges = group.keys(rows, T)
        ranges = disjoint([range(r.start, min(r.stop, end), r.step) for r in ranges])
        cols: Keys = ranges[0] if len(ranges) == 1 else tuple(ranges)
        for term in group.terms:
            scattered = term.scattered(rows, T)
            if scattered is not None:
                scattered = scattered.masked_fill(_inside(scattered, ranges), -1)
                shared = positions(cols, facts.device).expand(H, -1)
                cols = torch.cat([shared, scattered.expand(H, -1)], dim=-1)
        return Tile(rows, cols, part) if isinstance(cols, Tensor) or len(cols) else None

    def tiles(all_rows: Iterable[range]) -> list[Tile]:
        return [one for one in map(tile, all_rows) if one is not None]

    if isinstance(group, All):
        return _each(tiles(_rows(range(T), TILE)), allowed)
    if group.terms[0].span is not None:
        return _each(tiles(_span_rows(group, T)), allowed)
    if group.terms[0].share is not None:
        size = min([TILE, *(term.share for term in group.terms if term.share is not None)])
        return _scattered_batches(tiles(_rows(range(T), size)), allowed, H)
    if torch.compiler.is_compiling():
        return _each(tiles(_shared_rows(group, T, _large(group))), allowed)
    batches, left = _runs(tiles(_shared_rows(group, T, _small(group, facts.rows))), allowed)
    return batches + _each(tiles(_joined(left, _large(group))), allowed)


def _rows(places: range, size: int) -> list[range]:
    return [places[start : start + size] for start in range(0, len(places), size)]


def _shared_rows(group: Pattern, T: int, size: int) -> Iterator[range]:
    """Queries that share keys, `size` at a time; neighbouring residues one after the other."""
    step = group.terms[0].step
    for start in range(0, -(-T // step), size):
        for residue in range(min(step, T)):
            rows = range(residue, T, step)[start : start + size]
            if len(rows):
                yield rows


def _span_rows(group: Pattern, T: int) -> list[range]:
    """Global tokens, which meet every key, and long pieces of what lies between, which meet only them."""
    spans = [term.span for term in group.terms if term.span is not None]
    borders = sorted({0, T, *(min(b, T) for span in spans for b in (span.start, span.stop))})
    return [
        rows
        for a, b in pairwise(borders)
        for rows in _rows(range(a, b), TILE if any(a in s for s in spans) else LONG * TILE)
    ]


def _small(group: Pattern, least: int) -> int:
    """Rows of a tile of a batch: so few that little of it is masked, so many that a matrix product is one."""
    period = Union(group.terms).period
    if period is None:
        return TILE
    return period * -(-least // period) if period <= LONG * TILE else TILE


def _large(group: Pattern) -> int:
    """Rows of a tile that stands alone: fewer where keys are few, so that it is not mostly masked."""
    if group.reach is None:
        return max(1, TILE // 2)
    steps = group.reach // group.terms[0].step
    return min(TILE, 32 if steps <= 16 else 64 if steps <= 64 else TILE)


def _joined(left: list[range], size: int) -> Iterator[range]:
    """The same queries in pieces of up to `size`, neighbours joined."""
    yield from (r for r in left if r.step > 1)
    plain = [r for r in left if r.step == 1]
    starts = [0, *accumulate(len(r) for r in plain)]
    runs = groupby(zip(starts, plain, strict=False), key=lambda pair: pair[1].start - pair[0])
    for _, run in runs:
        rows = [r for _, r in run]
        yield from _rows(range(rows[0].start, rows[-1].stop), size)


def _runs(tiles: list[Tile], allowed: "Allowance") -> tuple[list[Batch], list[range]]:
    """Batches of neighbours in the list that look alike and lie equally far apart, and the rows of all others."""
    batches, left, n = list[Batch](), list[range](), 0
    alike = [allowed.alike(tile) for tile in tiles]
    while n < len(tiles):
        tile, end = tiles[n], n + 1
        shift = tiles[end].rows.start - tile.rows.start if end < len(tiles) else 0
        while (
            alike[n] is not None
            and end < len(tiles)
            and alike[end] == alike[n]
            and tiles[end].rows.start == tile.rows.start + (end - n) * shift
        ):
            end += 1
        if end - n >= RUN and isinstance(tile.cols, range):
            batches.append(_batch(tile, allowed)._replace(repeats=end - n, shift=shift))
        else:
            left += [tile.rows for tile in tiles[n:end]]
        n = end
    return batches, left


def _scattered_batches(tiles: list[Tile], allowed: "Allowance", H: int) -> list[Batch]:
    """One batch for neighbours with as many keys each, all of whose queries see the same ones of them."""
    batches = list[Batch]()
    seen = [allowed.columns(tile, H) for tile in tiles]
    runs = groupby(
        zip(tiles, seen, strict=True),
        key=lambda pair: (len(pair[0].rows), positions(pair[0].cols).shape, pair[1] is None),
    )
    for (size, _, unlike), run in runs:
        some, columns = zip(*run, strict=True)
        if unlike or len(some) < RUN:
            batches += _each(some, allowed)
            continue
        cols = torch.stack([positions(tile.cols) for tile in some], dim=1).clamp(min=0)
        kept = _Kept(torch.stack(columns, dim=1))
        batches.append(Batch(some[0]._replace(cols=cols), kept, len(some), size))
    return batches


class _Kept:
    """Pairs that do not change."""

    def __init__(self, allowed: Bool[Tensor, "H n 1 s"]):
        self._allowed = None if allowed.all() else allowed
        self._pairs: dict[torch.dtype, Pairs] = {}

    def __call__(self, dtype: torch.dtype) -> Pairs | None:
        if self._allowed is not None and dtype not in self._pairs:
            self._pairs[dtype] = Pairs.of(self._allowed, dtype)
        return self._pairs.get(dtype)


def _each(tiles: Iterable[Tile], allowed: "Allowance") -> list[Batch]:
    return [_batch(tile, allowed) for tile in tiles]


def _batch(tile: Tile, allowed: "Allowance") -> Batch:
    return Batch(tile, _everything if allowed.opens(tile) else partial(allowed.pairs, tile))


def _everything(dtype: torch.dtype) -> None:
    """A tile's pairs where all are allowed."""


def _inside(cols: Int[Tensor, "h s"], ranges: list[range]) -> Bool[Tensor, "h s"]:
    inside = torch.zeros_like(cols, dtype=torch.bool)
    for r in ranges:
        inside |= (cols >= r.start) & (cols < r.stop) & ((cols - r.start) % r.step == 0)
    return inside


@dataclass(frozen=True, eq=False)
class Allowance:
    """The pairs that a tile counts: those of its group of terms that no earlier group has, and the mask allows."""

    groups: list[Pattern]
    mask: Mask
    ahead: Ahead | None
    heads: slice
    device: torch.device
    marks: list[list[int] | None]
    _last: dict[Hashable, Pairs] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The part of the first group; keys in front are a part before it."""
        return int(self.ahead is not None)

    def pairs(self, tile: Tile, dtype: torch.dtype) -> Pairs:
        """What the tile allows, asked for once for neighbours that look alike."""
        likeness = self.alike(tile)
        if likeness is None:
            return Pairs.of(self(tile), dtype)
        if (likeness, dtype) not in self._last:
            self._last.clear()
            self._last[likeness, dtype] = Pairs.of(self(tile), dtype)
        return self._last[likeness, dtype]

    def opens(self, tile: Tile) -> bool:
        """Whether all pairs of the tile are allowed, as far as can be told without waiting for a device."""
        return not self._is_unknown(tile) and bool(self(tile).all())

    def columns(self, tile: Tile, H: int) -> Bool[Tensor, "H 1 s"] | None:
        """The keys that every query of the tile sees, by head; None where queries differ, or that cannot be told."""
        if self._is_unknown(tile) or len(range(H)[self.heads]) < H:
            return None
        allowed = self(tile)[0]
        first = allowed[:, :1]
        return first.expand(H, -1, -1) if bool((allowed == first).all()) else None

    def _is_unknown(self, tile: Tile) -> bool:
        return (
            self._reads_values(tile) or torch.compiler.is_compiling() or self.device.type == "meta"
        )

    def __call__(self, tile: Tile) -> Bool[Tensor, "b h t s"]:
        rows, cols = positions(tile.rows, self.device), positions(tile.cols, self.device)
        i, j = rows[None, None, :, None], cols.view(1, -1, 1, cols.shape[-1])
        if tile.front:
            return self._front(rows, i)
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

    def alike(self, tile: Tile) -> Hashable | None:
        """Where a tile lies but for a shift that the pattern does not notice; None where masks or places tell tiles apart."""
        if isinstance(tile.cols, Tensor) or tile.front or self._reads_values(tile):
            return None
        terms = self._terms(tile)
        period = Union(tuple(term for some in terms for term in some)).period
        if period is None:
            return None
        ranges = (tile.cols,) if isinstance(tile.cols, range) else tile.cols
        start, rows = tile.rows.start, tile.rows
        return (
            (tuple(terms), start % period, len(rows), rows.step),
            tuple((r.start - start, len(r), r.step) for r in ranges),
        )

    def _terms(self, tile: Tile) -> list[tuple[Pattern, ...]]:
        """The tile's own terms, and those of each earlier group, but for global tokens that it does not touch."""

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
        """Whether a mask has something to say about this tile that a shift would change."""
        mask = self.mask
        if mask.pairwise is not None or mask.shift is not None:
            return True
        for marks in self.marks:
            if marks is None or isinstance(tile.cols, Tensor):
                return True
            low, high = _hull(tile.cols)
            if marks[high + 1] > marks[low]:
                return True
        return False

    def _restrict(self, pairs: Tensor, rows: Tensor, j: Tensor) -> Tensor:
        mask, at = self.mask, j[0, :, 0].clamp(min=0)
        if mask.global_tokens is not None:
            seen_by_all = mask.global_tokens[:, at][:, :, None]
            if self.ahead is not None and self.ahead.present is not None:
                pairs = pairs & ~seen_by_all
            else:
                seen = seen_by_all | mask.global_tokens[:, None, rows, None]
                pairs = pairs | (seen & (j <= rows[:, None]) if mask.causal else seen)
        if mask.valid is not None:
            pairs = pairs & mask.valid[:, at][:, :, None]
        if mask.pairwise is not None:
            pairs = pairs & _columns(mask.pairwise[:, :, rows], at[None])
        return pairs

    def _front(self, rows: Tensor, i: Tensor) -> Bool[Tensor, "b h t E"]:
        assert self.ahead is not None
        at, present = self.ahead.position, self.ahead.present
        assert at is not None and present is not None
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
