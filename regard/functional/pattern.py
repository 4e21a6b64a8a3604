"""Softmax attention over a pattern of pairs, at the cost of its pairs.

Queries are taken in tiles that share keys: neighbours for windows and blocks, queries a stride apart for strides. A
tile meets the slice of keys that its pattern names, each key once, under the exact mask. Parts of a union that want
different tiles are merged by their log-sum-exp (Child et al. 2019, arXiv 1904.10509; Beltagy et al. 2020,
arXiv 2004.05150).
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from regard.core.compaction import compaction
from regard.core.errors import ShapeError
from regard.core.mask import OPEN, Mask
from regard.functional.flex import flex_pattern_attention
from regard.functional.implementation import choose
from regard.functional.patterns import All, Pattern, PerHead, Union, disjoint, picture
from regard.functional.softmax import masked_softmax, softmax_attention
from regard.functional.tiles import Keys, Tile, positions, tile_attention

TILE = 128  # queries


def pattern_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
    external: tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]] | None = None,
    max_global: int | None = None,
    impl: str = "auto",
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs of the pattern that the mask allows.

    external: keys and values that every query sees besides. max_global: the most global tokens that a row has. Without
    it any token may be one, and where `mask.global_tokens` is given every query is compared with every key: time grows
    as T^2, memory does not. impl: see `implementation`.
    """
    _check_one_axis(q, k)
    if choose("pattern", impl, q, mask, plain=external is None) == "flex":
        return flex_pattern_attention(q, k, v, pattern=pattern, mask=mask, scale=scale)
    if isinstance(pattern, PerHead):
        return _each_head(q, k, v, pattern, mask, scale, external, max_global)
    front = None if external is None else Front(*external)
    if mask.global_tokens is None or max_global is None:
        return _tiled(q, k, v, pattern, mask, scale, front)
    at, present = global_places(mask.global_tokens, max_global)
    front = Front(pick(k, at), pick(v, at), at, present)
    if external is not None:
        E = external[0].shape[2]
        front = Front(
            torch.cat([external[0], front.k], dim=2),
            torch.cat([external[1], front.v], dim=2),
            F.pad(at, (E, 0), value=-1),
            F.pad(present, (E, 0), value=True),
        )
    y = _tiled(q, k, v, pattern, mask, scale, front)
    return replace_rows(y, q, k, v, mask, at, present, scale=scale, external=external)


def pattern_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
    external: Float[Tensor, "B H E K"] | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weights that `pattern_attention` applies, external keys first; rows without a key are zero."""
    _check_one_axis(q, k)
    T = q.shape[2]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    allowed = mask.dense(T, T, pattern=picture(pattern, T, device=q.device))
    if external is not None:
        allowed = F.pad(allowed, (external.shape[2], 0), value=True)
        k = torch.cat([external, k], dim=2)
    return masked_softmax(scale * q @ k.transpose(-1, -2), allowed)


def global_places(
    global_tokens: Bool[Tensor, "B T"], count: int
) -> tuple[Int[Tensor, "B M"], Bool[Tensor, "B M"]]:
    """Positions of the first `count` global tokens of every row, and which of them exist."""
    order = compaction(global_tokens)
    return order.source[:, :count], order.valid[:, :count]


def pick(z: Shaped[Tensor, "B H T K"], at: Int[Tensor, "B M"]) -> Shaped[Tensor, "B H M K"]:
    return z.gather(2, at[:, None, :, None].expand(-1, z.shape[1], -1, z.shape[3]))


def replace_rows(
    y: Float[Tensor, "B H T V"],
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    mask: Mask,
    at: Int[Tensor, "B M"],
    present: Bool[Tensor, "B M"],
    *,
    scale: float | None = None,
    external: tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]] | None = None,
) -> Float[Tensor, "B H T V"]:
    """y, with the rows of global tokens computed anew over all keys that the mask allows."""
    T = q.shape[2]
    allowed = present[:, None, :, None].expand(-1, 1, -1, T)
    if mask.causal:
        allowed = allowed & (torch.arange(T, device=q.device) <= at[:, None, :, None])
    if mask.valid is not None:
        allowed = allowed & mask.valid[:, None, None, :]
    if mask.pairwise is not None:
        allowed = allowed & pick(mask.pairwise.expand(q.shape[0], -1, -1, -1), at)
    if external is not None:
        k, v = torch.cat([external[0], k], dim=2), torch.cat([external[1], v], dim=2)
        allowed = F.pad(allowed, (external[0].shape[2], 0), value=True)
    rows = softmax_attention(pick(q, at), k, v, mask=Mask(pairwise=allowed), scale=scale)
    rows = torch.where(present[:, None, :, None], rows, pick(y, at))
    return y.scatter(2, at[:, None, :, None].expand_as(rows), rows)


class Front(NamedTuple):
    """Keys before those of the tokens: learned ones, or global tokens brought to where every tile meets them."""

    k: Float[Tensor, "B H E K"]
    v: Float[Tensor, "B H E V"]
    position: Int[Tensor, "B E"] | None = None  # of global tokens; -1: learned
    present: Bool[Tensor, "B E"] | None = None


@dataclass(frozen=True, eq=False)
class Allowance:
    """The pairs that a tile counts: those of its group of terms that no earlier group has, and the mask allows."""

    groups: list[Pattern]
    mask: Mask
    front: Front | None
    device: torch.device

    def __call__(self, tile: Tile) -> Bool[Tensor, "b h t s"]:
        rows, cols = positions(tile.rows, self.device), positions(tile.cols, self.device)
        E = 0 if self.front is None else self.front.k.shape[2]
        front = E if tile.part == 0 else 0
        cols = cols[..., front:] - E if E else cols
        i, j = rows[None, None, :, None], cols.view(1, -1, 1, cols.shape[-1])
        pairs = self.groups[tile.part].contains(i, j)
        for earlier in self.groups[: tile.part]:
            pairs = pairs & ~earlier.contains(i, j)
        pairs = self._restrict(pairs, rows, i, j)
        return _beside(self._front(rows, i), pairs) if front else pairs

    def alike(self, tile: Tile) -> Hashable | None:
        """Where a tile lies but for a shift that the pattern does not notice; None where masks or places tell tiles apart."""
        mask, period = self.mask, self._period
        masks = (mask.valid, mask.pairwise, mask.global_tokens, mask.shift, self.front)
        if period is None or isinstance(tile.cols, Tensor) or any(m is not None for m in masks):
            return None
        ranges = (tile.cols,) if isinstance(tile.cols, range) else tile.cols
        start, rows = tile.rows.start, tile.rows
        return (
            (tile.part, start % period, len(rows), rows.step),
            tuple((r.start - start, len(r), r.step) for r in ranges),
        )

    @cached_property
    def _period(self) -> int | None:
        return Union(tuple(self.groups)).period

    def _restrict(self, pairs: Tensor, rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
        mask, at = self.mask, j[0, :, 0].clamp(min=0)
        if j.shape[1] > 1:
            pairs = pairs & (j >= 0)
        if mask.global_tokens is not None:
            seen_by_all = mask.global_tokens[:, at][:, :, None]
            if self.front is not None and self.front.present is not None:
                pairs = pairs & ~seen_by_all
            else:
                pairs = pairs | seen_by_all | mask.global_tokens[:, None, rows, None]
        if mask.causal:
            pairs = pairs & (j <= i)
        if mask.valid is not None:
            pairs = pairs & mask.valid[:, at][:, :, None]
        if mask.pairwise is not None:
            pairs = pairs & _columns(mask.pairwise[:, :, rows], at[None])
        return pairs

    def _front(self, rows: Tensor, i: Tensor) -> Bool[Tensor, "b h t E"]:
        assert self.front is not None
        at, present = self.front.position, self.front.present
        if at is None or present is None:
            return torch.ones(
                1, 1, len(rows), self.front.k.shape[2], dtype=torch.bool, device=self.device
            )
        seen = present[:, None, None].expand(-1, 1, len(rows), -1)
        if self.mask.causal:
            seen = seen & (at[:, None, None] <= i)
        if self.mask.pairwise is not None:
            pairs = _columns(self.mask.pairwise[:, :, rows], at.clamp(min=0)[:, None])
            seen = seen & (pairs | (at < 0)[:, None, None])
        return seen


def _columns(
    pairwise: Bool[Tensor, "b h t S"], at: Int[Tensor, "b2 h2 s"]
) -> Bool[Tensor, "b3 h3 t s"]:
    b, h = max(pairwise.shape[0], at.shape[0]), max(pairwise.shape[1], at.shape[1])
    index = at[:, :, None].expand(b, h, pairwise.shape[2], -1)
    return pairwise.expand(b, h, -1, -1).gather(3, index)


def _beside(
    a: Bool[Tensor, "b h t E"], b: Bool[Tensor, "b2 h2 t2 s"]
) -> Bool[Tensor, "b3 h3 t3 n"]:
    lead = torch.broadcast_shapes(a.shape[:3], b.shape[:3])
    return torch.cat([a.expand(*lead, -1), b.expand(*lead, -1)], dim=-1)


def _tiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    mask: Mask,
    scale: float | None,
    front: Front | None,
) -> Tensor:
    any_global = mask.global_tokens is not None and (front is None or front.present is None)
    dense = any_global or q.shape[2] <= TILE
    groups = [pattern] if dense else _groups(pattern)
    plan = [All()] if dense else groups
    tiles = [
        tile
        for part, group in enumerate(plan)
        for tile in _tiles(group, part, q.shape[1], q.shape[2], mask.causal, q.device)
    ]
    if front is not None:
        k, v = torch.cat([front.k, k], dim=2), torch.cat([front.v, v], dim=2)
        tiles = [_behind(front.k.shape[2], tile, q.device) for tile in tiles]
    allowed = Allowance(groups, mask, front, q.device)
    return tile_attention(q, k, v, tiles=tiles, allowed=allowed, alike=allowed.alike, scale=scale)


def _groups(pattern: Pattern) -> list[Pattern]:
    """The terms of the pattern, those that want the same tiles in one union."""

    def kind(term: Pattern) -> tuple[int, int]:
        return term.step, term.share or 0

    return [Union(tuple(group)) for _, group in groupby(sorted(pattern.terms, key=kind), key=kind)]


def _tiles(
    group: Pattern, part: int, H: int, T: int, causal: bool, device: torch.device
) -> list[Tile]:
    tiles, step, size = [], group.terms[0].step, _tile_size(group)
    for residue in range(min(step, T)):
        alike = range(residue, T, step)
        for start in range(0, len(alike), size):
            rows = alike[start : start + size]
            end = rows[-1] + 1 if causal else T
            ranges = group.keys(rows, T)
            ranges = disjoint([range(r.start, min(r.stop, end), r.step) for r in ranges])
            cols: Keys = ranges[0] if len(ranges) == 1 else tuple(ranges)
            for term in group.terms:
                scattered = term.scattered(rows, T)
                if scattered is not None:
                    scattered = scattered.masked_fill(_inside(scattered, ranges), -1)
                    shared = positions(cols, device).expand(H, -1)
                    cols = torch.cat([shared, scattered.expand(H, -1)], dim=-1)
            if isinstance(cols, Tensor) or len(cols):
                tiles.append(Tile(rows, cols, part))
    return tiles


def _tile_size(group: Pattern) -> int:
    """Fewer queries at once where keys are few, so that a tile is not mostly masked; whole blocks where they scatter."""
    shares = [term.share for term in group.terms if term.share is not None]
    if shares or isinstance(group, All):
        return min([TILE, *shares])
    if group.reach is None:
        return min(TILE, 64)
    steps = group.reach // group.terms[0].step
    return min(TILE, 32 if steps <= 16 else 64 if steps <= 64 else 128)


def _inside(cols: Int[Tensor, "h s"], ranges: list[range]) -> Bool[Tensor, "h s"]:
    inside = torch.zeros_like(cols, dtype=torch.bool)
    for r in ranges:
        inside |= (cols >= r.start) & (cols < r.stop) & ((cols - r.start) % r.step == 0)
    return inside


def _behind(E: int, tile: Tile, device: torch.device) -> Tile:
    """The tile with its keys behind E others, which the first part meets too."""
    if isinstance(tile.cols, Tensor):
        cols = torch.where(tile.cols >= 0, tile.cols + E, -1)
        if tile.part == 0:
            front = torch.arange(E, device=device).expand(*cols.shape[:-1], -1)
            cols = torch.cat([front, cols], dim=-1)
        return tile._replace(cols=cols)
    ranges = (tile.cols,) if isinstance(tile.cols, range) else tile.cols
    moved = tuple(range(r.start + E, r.stop + E, r.step) for r in ranges)
    return tile._replace(cols=(range(E), *moved) if tile.part == 0 else moved)


def _each_head(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: PerHead,
    mask: Mask,
    scale: float | None,
    external: tuple[Tensor, Tensor] | None,
    max_global: int | None,
) -> Tensor:
    """Heads of one pattern together, and back into the order of the heads."""
    if len(pattern.heads) != q.shape[1]:
        raise ShapeError(f"a pattern for {len(pattern.heads)} heads meets queries of {q.shape[1]}")
    parts, order = [], []
    for one in dict.fromkeys(pattern.heads):
        heads = [h for h, other in enumerate(pattern.heads) if other == one]
        index = torch.tensor(heads, device=q.device)
        pairwise = mask.pairwise
        if pairwise is not None and pairwise.shape[1] > 1:
            pairwise = pairwise[:, index]
        part = pattern_attention(
            q[:, index],
            k[:, index],
            v[:, index],
            pattern=one,
            mask=replace(mask, pairwise=pairwise),
            scale=scale,
            external=None if external is None else (external[0][:, index], external[1][:, index]),
            max_global=max_global,
        )
        parts.append(part)
        order += heads
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(parts, dim=1)[:, torch.tensor(back, device=q.device)]


def _check_one_axis(q: Tensor, k: Tensor) -> None:
    if q.shape[2] != k.shape[2]:
        raise ShapeError(
            f"a pattern needs queries and keys on one axis, got {q.shape[2]} and {k.shape[2]} of them"
        )
