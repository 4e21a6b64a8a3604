"""Softmax attention over a pattern of pairs, at the cost of its pairs.

Queries are taken in tiles that share keys: neighbours for windows and blocks, queries a stride apart for strides. A
tile meets the slice of keys that its pattern names, each key once, under the exact mask. Parts of a union that want
different tiles are merged by their log-sum-exp (Child et al. 2019, arXiv 1904.10509; Beltagy et al. 2020,
arXiv 2004.05150).
"""

import math
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.errors import ShapeError
from regard.core.mask import OPEN, Mask
from regard.functional.patterns import All, Pattern, PerHead, Union, disjoint, picture
from regard.functional.softmax import masked_softmax
from regard.functional.tiles import Tile, places, tile_attention

TILE = 128  # queries


def pattern_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs of the pattern that the mask allows.

    Global tokens (`mask.global_tokens`) may be any, so that every query is compared with every key where they are
    given: time grows as T^2, memory does not.
    """
    _check_one_axis(q, k)
    if isinstance(pattern, PerHead):
        return _each_head(q, k, v, pattern, mask, scale)
    T, device = q.shape[2], q.device
    if mask.global_tokens is not None:
        groups, tiles = [pattern], _tiles(All(), 0, T, mask.causal, device)
    else:
        groups = _groups(pattern)
        tiles = [
            tile
            for n, group in enumerate(groups)
            for tile in _tiles(group, n, T, mask.causal, device)
        ]
    return tile_attention(
        q, k, v, tiles=tiles, allowed=Allowance(groups, mask, device), scale=scale
    )


def pattern_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T T"]:
    """The weights that `pattern_attention` applies; rows without a key are zero."""
    _check_one_axis(q, k)
    T = q.shape[2]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    pairs = picture(pattern, T).to(q.device)
    return masked_softmax(scale * q @ k.transpose(-1, -2), mask.dense(T, T, pattern=pairs))


@dataclass(frozen=True, eq=False)
class Allowance:
    """The pairs that a tile counts: those of its group of terms that no earlier group has, and the mask allows."""

    groups: list[Pattern]
    mask: Mask

    device: torch.device

    def __call__(self, tile: Tile) -> Bool[Tensor, "b h t s"]:
        rows, cols = places(tile.rows, self.device), places(tile.cols, self.device)
        i, j = rows[None, None, :, None], cols[None, None, None, :]
        pairs = self.groups[tile.part].contains(i, j)
        for earlier in self.groups[: tile.part]:
            pairs = pairs & ~earlier.contains(i, j)
        mask = self.mask
        if mask.global_tokens is not None:
            pairs = (
                pairs
                | mask.global_tokens[:, None, None, cols]
                | mask.global_tokens[:, None, rows, None]
            )
        if mask.causal:
            pairs = pairs & (j <= i)
        if mask.valid is not None:
            pairs = pairs & mask.valid[:, None, None, cols]
        if mask.pairwise is not None:
            pairs = pairs & mask.pairwise[:, :, rows[:, None], cols]
        return pairs


def _groups(pattern: Pattern) -> list[Pattern]:
    """The terms of the pattern, those whose queries go together in one union."""
    terms = sorted(pattern.terms, key=lambda term: term.step)
    return [Union(tuple(group)) for _, group in groupby(terms, key=lambda term: term.step)]


def _tiles(group: Pattern, part: int, T: int, causal: bool, device: torch.device) -> list[Tile]:
    tiles, step = [], group.terms[0].step
    for residue in range(min(step, T)):
        alike = range(residue, T, step)
        for start in range(0, len(alike), TILE):
            rows = alike[start : start + TILE]
            end = rows[-1] + 1 if causal else T
            ranges = disjoint(
                [range(r.start, min(r.stop, end), r.step) for r in group.keys(rows, T)]
            )
            if ranges:
                cols = (
                    ranges[0]
                    if len(ranges) == 1
                    else torch.cat([places(r, device) for r in ranges])
                )
                tiles.append(Tile(rows, cols, part))
    return tiles


def _each_head(
    q: Tensor, k: Tensor, v: Tensor, pattern: PerHead, mask: Mask, scale: float | None
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
        mine = replace(mask, pairwise=pairwise)
        parts.append(
            pattern_attention(
                q[:, index], k[:, index], v[:, index], pattern=one, mask=mine, scale=scale
            )
        )
        order += heads
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(parts, dim=1)[:, torch.tensor(back, device=q.device)]


def _check_one_axis(q: Tensor, k: Tensor) -> None:
    if q.shape[2] != k.shape[2]:
        raise ShapeError(
            f"a pattern of positions needs queries and keys on one axis, got {q.shape[2]} and {k.shape[2]} of them"
        )
