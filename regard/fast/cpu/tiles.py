"""The tiles of a pattern: some queries of one lane, and the keys that its terms give them, as slices where they are evenly spaced.

A pair of several terms counts in the first of them. Tiles are kept by the value of a pattern, and masks that are equal once.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.functional.pattern import beside, sharing
from regard.functional.patterns import (
    All,
    Block,
    Global,
    Pattern,
    Scattered,
    Strided,
    Union,
    Window,
)

EVEN = Window, Block, Strided, Global, All
"""Patterns whose keys are evenly spaced."""


class Tile(NamedTuple):
    """keys: an index names those of each head, -1 where there is none. bias: 0 and -inf; None: all pairs count. first: of its queries."""

    rows: slice
    keys: tuple[slice | Int[Tensor, "h s"], ...]
    sizes: list[int]
    bias: Float[Tensor, "1 h t s"] | None
    first: bool


@dataclass(frozen=True)
class Part:
    """Terms whose tiles are the same, and those that come before. key: both by value."""

    key: tuple[Hashable, ...]
    terms: tuple[Pattern, ...] = field(compare=False)
    earlier: tuple[Pattern, ...] = field(compare=False)


def tiles(pattern: Pattern, causal: bool, H: int, T: int, size: int) -> Iterator[Tile]:
    """Tiles of one pattern, part by part; kept where they are few. Terms with tables are parts of their own."""
    earlier: tuple[Pattern, ...] = ()
    for group in sharing(pattern):
        for table in (False, True):
            terms = tuple(term for term in group if isinstance(term, Scattered) == table)
            if not terms:
                continue
            key = [
                (term.size, term.table.shape, term.table.numpy().tobytes())
                if isinstance(term, Scattered)
                else term
                for term in (*terms, *earlier)
            ]
            grows = any(term.queries == "all" and term.lanes == 1 for term in terms)
            part = Part((len(terms), *key), terms, earlier)
            yield from (_made if grows else _kept)(part, causal, H, T, size)
            earlier += terms


@lru_cache(maxsize=32)
def window_tiles(
    window: int, dilation: int, causal: bool, H: int, T: int, size: int
) -> tuple[Tile, ...]:
    return tuple(tiles(Window(window, window, dilation), causal, H, T, size))


def _made(part: Part, causal: bool, H: int, T: int, size: int) -> Iterator[Tile]:
    terms, earlier = part.terms, part.earlier
    known = dict[tuple, Tensor]()
    for rows, first, c in _cuts(terms, T, size):
        each = [_keys(term.keys(first, c, T, causal), rows, H, T, causal) for term in terms]
        keys, places = zip(*each, strict=True)
        sizes = [z.shape[-1] for z in places]
        if any(sizes):
            bias = _bias(terms, earlier, rows, places, causal)
        elif earlier:
            continue
        else:  # none of its queries sees a key
            keys = (slice(0, 1),)
            sizes = [1]
            bias = torch.full((1, 1, 1, 1), -math.inf)
        if bias is not None:
            bias = known.setdefault((bias.shape, bias.numpy().tobytes()), bias)
        yield Tile(_slice(rows), keys, sizes, bias, not earlier)


@lru_cache(maxsize=32)
def _kept(part: Part, causal: bool, H: int, T: int, size: int) -> tuple[Tile, ...]:
    with torch.inference_mode(False):
        return tuple(_made(part, causal, H, T, size))


def _cuts(terms: Sequence[Pattern], T: int, size: int) -> Iterator[tuple[range, Tensor, int]]:
    """Queries of each tile; the first ones of the blocks that its keys are asked for, and their length."""
    d = terms[0].lanes
    c = next((t.queries for t in terms if t.queries != "any"), "any")
    for lane in range(min(d, T)):
        every = range(lane, T, d)
        some = c * max(1, size // 2 // c) if isinstance(c, int) else size * (1 + (c == "all"))
        for start in range(0, len(every), some):
            rows = every[start : start + some]
            asked = every if c == "all" else rows
            block = c if isinstance(c, int) else len(asked)
            yield rows, torch.tensor(list(asked[::block])).view(-1, 1, 1), block


def _keys(
    j: Int[Tensor, "*h N d s"], rows: range, H: int, T: int, causal: bool
) -> tuple[slice | Tensor, Tensor]:
    j = j.flatten(-3)
    j = j.masked_fill((j < 0) | (j > (rows[-1] if causal else T - 1)), -1)
    if j.ndim == 2:
        j = j.sort(-1).values
        j[:, 1:].masked_fill_(j[:, 1:] == j[:, :-1], -1)
        j = j.expand(H, -1)
        return j, j[:, None]
    j = j[j >= 0].unique()
    at = j.tolist()
    step = at[1] - at[0] if len(at) > 1 else 1
    even = range(at[0], at[-1] + 1, step) if at else range(0)
    return _slice(even) if list(even) == at else j.expand(H, -1), j[None, None]


def _slice(r: range) -> slice:
    return slice(r.start, r.stop, r.step)


def _bias(
    terms: Sequence[Pattern],
    earlier: Sequence[Pattern],
    rows: range,
    places: Sequence[Tensor],
    causal: bool,
) -> Float[Tensor, "1 h t s"] | None:
    def same(term: Pattern) -> bool:
        """All of these queries see the same keys, order aside."""
        if isinstance(term, Global):
            return rows[-1] < term.start or rows[0] >= term.stop
        return isinstance(term.queries, int) and rows[0] // term.queries == rows[-1] // term.queries

    i = torch.arange(rows.start, rows.stop, rows.step)[:, None]
    h = max(map(len, places))
    j = torch.cat([z.expand(h, -1, -1) for z in places], -1)
    some = i[:1] if all(map(same, [*terms, *earlier])) else i
    own = []
    for n, (term, at) in enumerate(zip(terms, places, strict=True)):
        pairs = term.contains(some[None, None], at[None])
        before = (*earlier, *terms[:n])
        twice = Union(before).contains(some[None, None], at[None]) if before else ~pairs
        own.append(pairs & ~twice)
    pairs = beside(*own) & (j >= 0)
    late = pairs & (j > rows[0]) if causal else pairs[..., :0]
    if pairs.all() and not late.any():
        return None
    bias = torch.zeros(pairs.shape).masked_fill_(~pairs, -math.inf)
    if late.any():
        bias = bias.expand(-1, -1, len(rows), -1).contiguous()
        at = late.flatten(0, 2).any(0)
        bias[..., at] = bias[..., at].masked_fill_(j[..., at] > i, -math.inf)
    return bias
