"""Patterns of allowed pairs as values, combined with `|`; mask, plan and picture are derived from them.

    Window(256, 256) | First(1)                     a sliding window and one token that sees all and is seen by all
    PerHead((Window(64, 64), Strided(64)))          one pattern for each head

A pattern is about positions: `contains(i, j)` is true if query i may see key j, `keys(rows, S)` gives ranges that hold
all keys of some queries, and `reach` and `sinks` bound what a causal stream must keep. Causality, padding and single
pairs belong to the mask, which is applied besides.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import or_

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.errors import OptionError
from regard.core.shapes import check_positive


class Pattern:
    """A set of (query, key) positions."""

    @property
    def step(self) -> int:
        """Distance between queries that share keys."""
        return 1

    def contains(
        self, i: Int[Tensor, "b 1 T 1"], j: Int[Tensor, "b 1 1 S"]
    ) -> Bool[Tensor, "b h T S"]:
        """True if query i may see key j; broadcast over batch and heads."""
        raise NotImplementedError

    def keys(self, rows: range, S: int) -> list[range]:
        """Ranges that together hold every key of these queries."""
        raise NotImplementedError

    @property
    def period(self) -> int | None:
        """Moving query and key together by multiples of this changes nothing; None: it does."""
        return None

    @property
    def share(self) -> int | None:
        """Neighbouring queries that share their scattered keys; None: there are no such keys."""
        return None

    def scattered(self, rows: range, S: int) -> Int[Tensor, "h s"] | None:
        """Keys of these queries that are in no range, by head; -1: none."""
        return None

    @property
    def span(self) -> range | None:
        """The tokens that see all and are seen by all, if the pattern is about these."""
        return None

    @property
    def reach(self) -> int | None:
        """Largest distance from a query back to a key, `sinks` aside; None: no bound."""
        return None

    @property
    def sinks(self) -> int:
        """Number of first tokens that every later query sees."""
        return 0

    @property
    def solid(self) -> bool:
        """True if a causal query sees exactly the keys within `reach`."""
        return False

    @property
    def terms(self) -> "tuple[Pattern, ...]":
        return (self,)

    def __or__(self, other: "Pattern") -> "Pattern":
        if isinstance(other, PerHead):
            return PerHead(tuple(self | one for one in other.heads))
        return Union(tuple(dict.fromkeys(self.terms + other.terms)))


@dataclass(frozen=True)
class Window(Pattern):
    """i - before <= j <= i + after, in steps of `dilation`: before + 1 + after keys, the query itself among them."""

    before: int
    after: int
    dilation: int = 1

    def __post_init__(self):
        check_positive(dilation=self.dilation)
        _check_counts(before=self.before, after=self.after)

    @property
    def step(self) -> int:
        return self.dilation

    @property
    def reach(self) -> int:
        return self.before * self.dilation

    @property
    def solid(self) -> bool:
        return self.dilation == 1

    @property
    def period(self) -> int:
        return 1

    def contains(self, i, j):
        near = (j >= i - self.before * self.dilation) & (j <= i + self.after * self.dilation)
        return near if self.dilation == 1 else near & (j % self.dilation == i % self.dilation)

    def keys(self, rows, S):
        first, end = (
            rows[0] - self.before * self.dilation,
            rows[-1] + self.after * self.dilation + 1,
        )
        return [range(first if first >= 0 else first % self.dilation, min(end, S), self.dilation)]


@dataclass(frozen=True)
class Block(Pattern):
    """Keys of the query's own block of `size` tokens, and of `before` and `after` whole blocks beside it."""

    size: int
    before: int = 0
    after: int = 0

    def __post_init__(self):
        check_positive(size=self.size)
        _check_counts(before=self.before, after=self.after)

    @property
    def reach(self) -> int:
        return (self.before + 1) * self.size - 1

    @property
    def period(self) -> int:
        return self.size

    def contains(self, i, j):
        own, block = i // self.size, j // self.size
        return (block >= own - self.before) & (block <= own + self.after)

    def keys(self, rows, S):
        first = max(rows[0] // self.size - self.before, 0) * self.size
        return [range(first, min((rows[-1] // self.size + self.after + 1) * self.size, S))]


@dataclass(frozen=True)
class Strided(Pattern):
    """Keys at a whole number of strides from the query: (i - j) mod stride = 0."""

    stride: int

    def __post_init__(self):
        check_positive(stride=self.stride)

    @property
    def step(self) -> int:
        return self.stride

    @property
    def period(self) -> int:
        return 1

    def contains(self, i, j):
        return i % self.stride == j % self.stride

    def keys(self, rows, S):
        return [range(rows[0] % self.stride, S, self.stride)]


@dataclass(frozen=True)
class Summary(Pattern):
    """The last `width` columns of every block: j mod block >= block - width. `group` g counts g * width further in."""

    block: int
    width: int
    group: int = 0

    def __post_init__(self):
        check_positive(block=self.block, width=self.width)
        _check_counts(group=self.group)
        if (self.group + 1) * self.width > self.block:
            raise OptionError(
                f"width ({self.width}) of group {self.group} does not fit into a block of {self.block} columns"
            )

    @property
    def _first(self) -> int:
        return self.block - (self.group + 1) * self.width

    @property
    def period(self) -> int:
        return self.block

    def contains(self, i, j):
        column = j % self.block
        return (column >= self._first) & (column < self._first + self.width)

    def keys(self, rows, S):
        return [range(self._first + c, S, self.block) for c in range(self.width)]


class _Global(Pattern):
    """Tokens that see all and are seen by all: those of `span`."""

    @property
    def span(self) -> range:
        raise NotImplementedError

    @property
    def reach(self) -> int | None:
        return 0 if self.span.start == 0 else None

    @property
    def sinks(self) -> int:
        return self.span.stop if self.span.start == 0 else 0

    def contains(self, i, j):
        return self._holds(i) | self._holds(j)

    def keys(self, rows, S):
        if rows[0] in self.span or rows[-1] in self.span:
            return [range(S)]
        return [range(self.span.start, min(self.span.stop, S))]

    def _holds(self, place: Int[Tensor, "b h t s"]) -> Bool[Tensor, "b h t s"]:
        before_end = place < self.span.stop
        return before_end if self.span.start == 0 else before_end & (place >= self.span.start)


@dataclass(frozen=True)
class First(_Global):
    """The first `count` tokens are global: they see all and are seen by all."""

    count: int

    def __post_init__(self):
        check_positive(count=self.count)

    @property
    def span(self) -> range:
        return range(self.count)


@dataclass(frozen=True)
class Span(_Global):
    """The tokens from `start` to before `stop` are global: they see all and are seen by all."""

    start: int
    stop: int

    def __post_init__(self):
        _check_counts(start=self.start)
        check_positive(**{"stop - start": self.stop - self.start})

    @property
    def span(self) -> range:
        return range(self.start, self.stop)


@dataclass(frozen=True)
class All(Pattern):
    """Every pair."""

    def contains(self, i, j):
        return torch.ones_like(j, dtype=torch.bool)

    def keys(self, rows, S):
        return [range(S)]


@dataclass(frozen=True, eq=False)
class Scattered(Pattern):
    """Blocks that a table names for each block of queries, head by head: table[h, i // size] holds j // size, or -1."""

    size: int
    table: Int[Tensor, "H N r"]

    def __hash__(self):
        return hash(self._identity)

    def __eq__(self, other):
        return isinstance(other, Scattered) and self._identity == other._identity

    @property
    def _identity(self) -> tuple:
        """Which tensor the table is, and how often it was written, where that is counted."""
        uncounted = torch.compiler.is_compiling() or self.table.is_inference()
        written = 0 if uncounted else self.table._version
        return self.size, id(self.table), written

    @property
    def share(self) -> int:
        return self.size

    def contains(self, i, j):
        named = self.table[:, (i // self.size)[:, 0, :, 0]].transpose(0, 1)  # b H T r
        block = torch.where(j >= 0, j // self.size, -2)
        pairs = torch.zeros_like(block, dtype=torch.bool)
        for one in named.unbind(-1):
            pairs = pairs | (one[..., None] == block)
        return pairs

    def keys(self, rows, S):
        return []

    def scattered(self, rows, S):
        blocks = self.table[:, rows[0] // self.size : rows[-1] // self.size + 1].flatten(1)
        again = (blocks[:, :, None] == blocks[:, None]).tril(-1).any(-1)
        inside = torch.arange(self.size, device=blocks.device)
        cols = (blocks[:, :, None] * self.size + inside).masked_fill(
            (again | (blocks < 0))[..., None], -1
        )
        cols = cols.flatten(1)
        return cols.masked_fill(cols >= S, -1)


@dataclass(frozen=True)
class Union(Pattern):
    """Pairs of any of the terms, each counted once. Written with `|`."""

    parts: tuple[Pattern, ...]

    @property
    def terms(self) -> tuple[Pattern, ...]:
        return self.parts

    @property
    def period(self) -> int | None:
        periods = [part.period for part in self.parts]
        return None if None in periods else math.lcm(*(p for p in periods if p is not None))

    @property
    def reach(self) -> int | None:
        reaches = [part.reach for part in self.parts]
        return None if None in reaches else max(r for r in reaches if r is not None)

    @property
    def sinks(self) -> int:
        return max(part.sinks for part in self.parts)

    def contains(self, i, j):
        return reduce(or_, (part.contains(i, j) for part in self.parts))

    def keys(self, rows, S):
        return [keys for part in self.parts for keys in part.keys(rows, S)]


@dataclass(frozen=True)
class PerHead(Pattern):
    """One pattern for each head, in the order of the heads."""

    heads: tuple[Pattern, ...]

    @property
    def reach(self) -> int | None:
        return Union(self.heads).reach

    @property
    def sinks(self) -> int:
        return Union(self.heads).sinks

    def contains(self, i, j):
        return torch.cat(
            torch.broadcast_tensors(*(one.contains(i, j) for one in self.heads)), dim=1
        )

    def keys(self, rows, S):
        return Union(self.heads).keys(rows, S)

    def __or__(self, other):
        others = other.heads if isinstance(other, PerHead) else (other,) * len(self.heads)
        if len(others) != len(self.heads):
            raise OptionError(
                f"patterns for {len(self.heads)} and for {len(others)} heads cannot be joined"
            )
        return PerHead(tuple(a | b for a, b in zip(self.heads, others, strict=True)))


def picture(
    pattern: Pattern,
    T: int,
    *,
    causal: bool = False,
    device: torch.device | None = None,
    rows: slice = slice(None),
) -> Bool[Tensor, "1 h t T"]:
    """The pairs of the queries `rows` among T tokens: the dense oracle, and what the documentation draws."""
    place = torch.arange(T, device=device)
    query = place[rows][:, None]
    pairs = pattern.contains(query[None, None], place[None, None, None, :])
    pairs = pairs.expand(1, -1, len(query), T)
    return pairs & (place <= query) if causal else pairs


def mask_mod(
    pattern: Pattern, *, causal: bool = False
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The same pairs in the form of torch's FlexAttention: mask_mod(b, h, q_idx, kv_idx)."""

    def allowed(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        pairs = _at(pattern, h, q_idx, kv_idx)
        return pairs & (kv_idx <= q_idx) if causal else pairs

    return allowed


def _at(pattern: Pattern, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """True if one query may see one key, in one head."""
    if isinstance(pattern, PerHead):
        return reduce(or_, (_at(one, h, i, j) & (h == n) for n, one in enumerate(pattern.heads)))
    if isinstance(pattern, Union):
        return reduce(or_, (_at(part, h, i, j) for part in pattern.parts))
    if isinstance(pattern, Scattered):
        H, N, r = pattern.table.shape
        row = (i // pattern.size).clamp(max=N - 1)  # kernels compute beyond the end, and drop it
        named = (pattern.table[h if H > 1 else h * 0, row, h * 0 + n] for n in range(r))
        return reduce(or_, (block == j // pattern.size for block in named))
    return pattern.contains(i, j)


def draw_blocks(
    num_heads: int, num_blocks: int, count: int, *, seed: int, causal: bool, first_is_global: bool
) -> Int[Tensor, "H N r"]:
    """`count` different blocks for each head and block, from `seed`; -1 where there are not so many to choose from.

    None of the block's own window (one block to each side), nor the first where it is global; only earlier ones when
    `causal` (Zaheer et al. 2020, arXiv 2007.14062).
    """
    generator = torch.Generator().manual_seed(seed + causal)
    own = torch.arange(num_blocks, device="cpu")
    first = int(first_is_global)
    near = (own - 1).clamp(min=first)  # where the window begins
    width = (own + 2).clamp(max=num_blocks) - near
    choice = (near if causal else num_blocks - width.clamp(min=0)) - first
    if first_is_global:
        choice = choice.masked_fill(own == 0, 0)
    drawn = torch.full((num_heads, num_blocks, count), -1, device="cpu")
    for n in range(count):  # Floyd's sampling without replacement
        last = choice - count + n
        lot = torch.rand(
            num_heads, num_blocks, generator=generator, device="cpu", dtype=torch.float64
        )
        rank = (lot * (last + 1)).long()
        taken = (drawn == rank[..., None]).any(-1)
        drawn[:, :, n] = torch.where(last < 0, -1, torch.where(taken, last, rank))
    block = drawn + first
    block = (
        block
        if causal
        else torch.where(block >= near[:, None], block + width[:, None].clamp(min=0), block)
    )
    return torch.where(drawn < 0, -1, block)


def disjoint(ranges: list[range]) -> list[range]:
    """The same numbers, each once: intervals joined, and combs cut where an interval covers them."""
    spans: list[range] = []
    for r in sorted((r for r in ranges if len(r) and r.step == 1), key=lambda r: r.start):
        if spans and r.start <= spans[-1].stop:
            spans[-1] = range(spans[-1].start, max(spans[-1].stop, r.stop))
        else:
            spans.append(r)
    combs = list(dict.fromkeys(r for r in ranges if len(r) and r.step > 1))
    if any(_overlap(a, b) for n, a in enumerate(combs) for b in combs[:n]):
        points = sorted({p for r in combs for p in r})
        runs = groupby(enumerate(points), key=lambda pair: pair[1] - pair[0])
        return disjoint(
            spans + [range(run[0][1], run[-1][1] + 1) for run in (list(g) for _, g in runs)]
        )
    for span in spans:
        combs = [piece for comb in combs for piece in _cut(comb, span)]
    return spans + combs


def _cut(comb: range, span: range) -> list[range]:
    pieces = comb[: _steps_below(comb, span.start)], comb[_steps_below(comb, span.stop) :]
    return [piece for piece in pieces if len(piece)]


def _steps_below(comb: range, bound: int) -> int:
    """How many numbers of the comb are smaller than the bound."""
    return min(max(-((comb.start - bound) // comb.step), 0), len(comb))


def _overlap(a: range, b: range) -> bool:
    return a.step != b.step or a.start % a.step == b.start % b.step


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise OptionError(f"{name} ({count!r}) must be a whole number, 0 or more")
