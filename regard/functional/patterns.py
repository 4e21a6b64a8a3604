"""Patterns of allowed pairs as values, combined with `|`.

    Window(256, 256) | First(1)                     a sliding window and one token that sees all and is seen by all
    PerHead((Window(64, 64), Strided(64)))          one pattern for each head

A pattern is about positions: `contains(i, j)` is true if query i may see key j, and `reach` and `sinks` bound what a causal stream must keep.
Causality, padding and single pairs belong to the mask, which is applied besides.

For `functional.pattern`, queries are cut into N blocks of c for each of d lanes, the tokens of one remainder mod d: those that share keys.
A pattern has its `lanes` d, the `queries` c that suit it, and gives the `keys` that a block may need, from the block's first query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.compiler import is_compiling

from regard.core import INTEGERS, Count, OptionError, check_option, shown
from regard.core.annotations import annotations


class Pattern:
    """A set of (query, key) positions."""

    lanes: int = 1
    queries: int | Literal["any", "all"] = "all"
    """Queries of a block; "any" number, or "all" of a lane: their keys grow with T."""

    def _check(self) -> None:
        """Raises OptionError for a field whose value is not of its type. Not while it is compiled."""
        cls: Any = type(self)
        for name, kind in () if is_compiling() else annotations(cls).items():
            check_option(cls.__name__, name, getattr(self, name), kind)

    def contains(
        self, i: Int[Tensor, "b 1 *T 1"], j: Int[Tensor, "b h *S s"]
    ) -> Bool[Tensor, "b h *T s"]:
        """True if query i may see key j; broadcast, heads along the second axis."""
        raise NotImplementedError

    def keys(
        self, first: Int[Tensor, "N d 1"], c: int, T: int, causal: bool
    ) -> Int[Tensor, "*h N d s"]:
        """Every key of the c queries from `first` on, at most once; others besides, and positions beyond 0 .. T - 1."""
        return torch.arange(T, device=first.device).expand(1, 1, T)

    @property
    def reach(self) -> int | None:
        """Largest distance from a query back to a key, `sinks` aside; None: no bound."""
        return None

    @property
    def halo(self) -> int | None:
        """Largest distance between a query and a key, where their distance alone says who sees whom; otherwise None."""
        return None

    @property
    def sinks(self) -> int:
        """Number of first tokens that every later query sees."""
        return 0

    @property
    def terms(self) -> "tuple[Pattern, ...]":
        return (self,)

    def __or__(self, other: "Pattern") -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        if isinstance(other, PerHead):
            return PerHead(tuple(self | one for one in other.heads))
        return Union(tuple(dict.fromkeys(self.terms + other.terms)))


@dataclass(frozen=True)
class Window(Pattern):
    """i - before <= j <= i + after, in steps of `dilation`: before + 1 + after keys, the query itself among them."""

    queries = "any"

    before: Count
    after: Count
    dilation: int = 1

    def __post_init__(self):
        self._check()
        object.__setattr__(self, "lanes", self.dilation)

    @property
    def reach(self) -> int:
        return self.before * self.dilation

    @property
    def halo(self) -> int:
        return max(self.before, self.after) * self.dilation

    def contains(self, i, j):
        d = self.dilation
        near = (j >= i - self.before * d) & (j <= i + self.after * d)
        return near if d == 1 else near & (j % d == i % d)

    def keys(self, first, c, T, causal):
        before = torch.sym_min(self.before, T)
        after = 0 if causal else torch.sym_min(self.after, T)
        return first + self.dilation * torch.arange(-before, c + after, device=first.device)


@dataclass(frozen=True)
class Block(Pattern):
    """Keys of the query's own block of `size` tokens, and of `before` and `after` whole blocks beside it."""

    size: int
    before: Count = 0
    after: Count = 0

    def __post_init__(self):
        self._check()
        object.__setattr__(self, "queries", self.size)

    @property
    def reach(self) -> int:
        return (self.before + 1) * self.size - 1

    def contains(self, i, j):
        own, block = i // self.size, j // self.size
        return (block >= own - self.before) & (block <= own + self.after)

    def keys(self, first, c, T, causal):
        before, after = (torch.sym_min(n * self.size, T) for n in (self.before, self.after))
        stop = self.size + (0 if causal else after)
        return first + torch.arange(-before, stop, device=first.device)


@dataclass(frozen=True)
class Strided(Pattern):
    """Keys at a whole number of strides from the query: (i - j) mod stride = 0."""

    stride: int

    def __post_init__(self):
        self._check()
        object.__setattr__(self, "lanes", self.stride)

    def contains(self, i, j):
        return i % self.stride == j % self.stride

    def keys(self, first, c, T, causal):
        return first + self.stride * torch.arange(c, device=first.device)


@dataclass(frozen=True)
class Summary(Pattern):
    """The last `width` columns of every block: j mod block >= block - width. `group` g counts g * width further in."""

    block: int
    width: int
    group: Count = 0

    def __post_init__(self):
        self._check()
        if (self.group + 1) * self.width > self.block:
            raise OptionError(
                f"width ({self.width}) of group {self.group} does not fit into a block of {self.block} columns"
            )

    @property
    def first(self) -> int:
        return self.block - (self.group + 1) * self.width

    def contains(self, i, j):
        column = j % self.block
        return (column >= self.first) & (column < self.first + self.width)

    def keys(self, first, c, T, causal):
        block = torch.arange((T + self.block - 1) // self.block, device=first.device)[:, None]
        column = self.first + torch.arange(self.width, device=first.device)
        return (self.block * block + column).flatten()[None, None]


class Global(Pattern):
    """The tokens from `start` to before `stop` see all and are seen by all; their own rows are computed apart."""

    queries = "any"
    start: int
    stop: int

    @property
    def reach(self) -> int | None:
        return 0 if self.start == 0 else None

    @property
    def sinks(self) -> int:
        return self.stop if self.start == 0 else 0

    def contains(self, i, j):
        of_i, of_j = ((place >= self.start) & (place < self.stop) for place in (i, j))
        return of_i | of_j

    def keys(self, first, c, T, causal):
        stop = torch.sym_min(self.stop, torch.sym_max(T, self.start + 1))
        return torch.arange(self.start, stop, device=first.device)[None, None]


@dataclass(frozen=True)
class First(Global):
    """The first `count` tokens are global: they see all and are seen by all."""

    start = 0
    count: int

    def __post_init__(self):
        self._check()
        object.__setattr__(self, "stop", self.count)


@dataclass(frozen=True)
class Span(Global):
    """The tokens from `start` to before `stop` are global: they see all and are seen by all."""

    start: Count
    stop: int

    def __post_init__(self):
        self._check()
        if not is_compiling() and self.start >= self.stop:
            raise OptionError(f"Span: start ({self.start}) must be below stop ({self.stop})")


@dataclass(frozen=True)
class All(Pattern):
    """Every pair."""

    def contains(self, i, j):
        return torch.ones_like(j, dtype=torch.bool)


@dataclass(frozen=True, eq=False)
class Scattered(Pattern):
    """Blocks that a table names for each block of queries, head by head: table[h, i // size] holds j // size, or -1."""

    size: int
    table: Int[Tensor, "H N r"]

    def __post_init__(self):
        size, table = self.size, self.table
        known = isinstance(table, Tensor) and table.dtype in INTEGERS and table.ndim == 3
        if not (known and isinstance(size, int) and size > 0):
            raise OptionError(
                f"Scattered: size ({shown(size)}) must be a positive integer, table ({shown(table)}) a tensor [H, N, r] of integers"
            )
        object.__setattr__(self, "queries", size)
        object.__setattr__(self, "table", table.long())

    def contains(self, i, j):
        head = torch.arange(len(self.table), device=j.device).view(-1, *[1] * (i.ndim - 2))
        named = self.table[head, (i // self.size).clamp_min(0)]  # b H *T 1 r
        block = torch.where(j >= 0, j // self.size, -2)
        return reduce(or_, (one == block for one in named.unbind(-1)), j != j)

    def keys(self, first, c, T, causal):
        block = self.table[:, first[:, 0, 0] // self.size]  # H N r
        again = (block[..., :, None] == block[..., None, :]).tril(-1).any(-1)
        j = self.size * block[..., None] + torch.arange(self.size, device=block.device)
        return j.masked_fill((again | (block < 0))[..., None], -1).flatten(2)[:, :, None]


class _Several(Pattern):
    """Bounds of several patterns: the largest of each."""

    parts: tuple[Pattern, ...]

    @property
    def reach(self) -> int | None:
        return _largest([part.reach for part in self.parts])

    @property
    def halo(self) -> int | None:
        return _largest([part.halo for part in self.parts])

    @property
    def sinks(self) -> int:
        return max(part.sinks for part in self.parts)


@dataclass(frozen=True)
class Union(_Several):
    """Pairs of any of the terms, each counted once. Written with `|`."""

    parts: tuple[Pattern, ...]

    @property
    def terms(self) -> tuple[Pattern, ...]:
        return self.parts

    def contains(self, i, j):
        return reduce(or_, (part.contains(i, j) for part in self.parts))


@dataclass(frozen=True)
class PerHead(_Several):
    """One pattern for each head, in the order of the heads."""

    heads: tuple[Pattern, ...]

    def __post_init__(self):
        heads = self.heads
        if not (isinstance(heads, tuple) and heads and all(isinstance(p, Pattern) for p in heads)):
            raise OptionError(f"heads ({shown(heads)}) must be a tuple of patterns")
        object.__setattr__(self, "parts", heads)

    def contains(self, i, j):
        return torch.cat(torch.broadcast_tensors(*(one.contains(i, j) for one in self.heads)), 1)

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
    pairs = pairs.expand(1, -1, query.shape[0], T)
    return pairs & (place <= query) if causal else pairs


def _largest(reaches: Sequence[int | None]) -> int | None:
    return None if None in reaches else max(r for r in reaches if r is not None)
