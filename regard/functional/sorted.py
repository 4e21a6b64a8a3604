"""Attention along sorted orders, which hashing and causal clusters share.

Each of R rounds sorts the tokens by group, and tokens of one group by time. Query i sees key j where they have near places:

    place = rank // size + gap group,    least <= place_i - place_j <= most

    the last W earlier tokens of the group      size 1, least 1 (0: the token itself too), most W
    chunks of c ranks, the own and its neighbours    size c, least -(chunks after), most (chunks before)

Ranks are cut into N blocks of c queries. A block needs s keys, and the rounds come under one softmax by the mass lse_r of each:

    q [B H R N c K],   k [B H R N s K],   scores [B H R N c s],   y = sum_r softmax_r(lse_r) y_r
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from regard.core import Mask, Mixed, MixedTile, OwnKeys, OwnValues, Queries
from regard.functional.rows import (
    Impl,
    choose,
    cleared,
    masked_softmax,
    of_any_length,
    scores,
    take_each,
    tiled,
)

TILE = 64
"""Queries of a block where no chunk says it."""

GAP = 1 << 32
"""Between the places of two groups: more than any window."""

Ranks = Int[Tensor, "B H R T"]  # a number of each token in each round
Places = Int[Tensor, "*#n"]


class Window(NamedTuple):
    """The keys that a query sees, by their places."""

    size: int
    gap: int
    least: int
    most: int

    def near(self, i: Places, j: Places) -> Bool[Tensor, "*n"]:
        """True where a query at place i sees a key at place j."""
        return (j <= i - self.least) & (j >= i - self.most)


def last_of_group(width: int, *, include_self: bool = False) -> Window:
    """The last `width` earlier tokens of the query's group; no later token changes them."""
    return Window(1, GAP, 0 if include_self else 1, width)


def chunks(size: int, *, before: int = 1, after: int, same_group: bool) -> Window:
    """The query's chunk of the sorted order, `before` earlier and `after` later ones, never round the ends."""
    return Window(size, GAP if same_group else 0, -after, before)


def sorted_attention(
    q: Queries,
    k: OwnKeys,
    v: OwnValues,
    *,
    group: Ranks,
    window: Window,
    mask: Mask,
    scale: float | None,
    exclude_self: bool,
    count_once: bool = True,
    impl: Impl,
) -> Mixed:
    """softmax(scale q k^T) v over the pairs of the window that the mask allows; zero where there is none.

    exclude_self: a token sees itself only where no round offers it another. count_once: a key that several rounds offer is one key. With
    global tokens, of which any token may be one, every query is compared with every key.
    """
    return choose("sorted", attend, impl, tile=TILE)(
        q,
        k,
        v,
        group=group,
        window=window,
        mask=mask,
        scale=scale,
        exclude_self=exclude_self,
        count_once=count_once,
    )


def attend(
    q, k, v, *, group, window: Window, mask, scale=None, exclude_self, count_once, tile=TILE
) -> Tensor:
    rules = group, window, mask, scale, exclude_self, count_once
    if mask.global_tokens is not None:

        def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> MixedTile:
            return _dense(q, k, rows, *rules).type_as(v) @ v

        return tiled(some, tile, q, k, v)
    R = group.shape[2]
    place, source, rank = places(group, window)
    i, j, inside = _blocks(source, window, tile)
    allowed = window.near(_at(place, i)[..., None], _at(place, j)[..., None, :]) & inside
    for r in range(R - 1) if count_once else ():  # what round r offers is not offered again
        P = place[:, :, r : r + 1].expand(-1, -1, R - r - 1, -1)
        again = window.near(
            _at(P, i[:, :, r + 1 :])[..., None], _at(P, j[:, :, r + 1 :])[..., None, :]
        )
        allowed = torch.cat([allowed[:, :, : r + 1], allowed[:, :, r + 1 :] & ~again], 2)
    allowed = allowed & _allowed(mask, i, j, exclude_self)

    s = scores(take_each(q, i), take_each(k, j), scale)
    s = s.masked_fill(~allowed, torch.finfo(s.dtype).min)
    a = s.softmax(-1)
    y = (a.type_as(v) @ take_each(v, j)).flatten(3, 4)
    y = take_each(y.flatten(1, 2), rank.flatten(1, 2)).unflatten(1, y.shape[1:3])  # B H R T V
    if R > 1:
        lse = s.amax(-1) - a.amax(-1).log()
        y = y * lse.flatten(3).gather(3, rank).softmax(2).type_as(y)[..., None]
    seen = allowed.any(-1).flatten(3).gather(3, rank).any(2)[..., None]
    return torch.where(seen, y.sum(2), alone(v, mask) if exclude_self else 0)


def places(group: Ranks, window: Window) -> tuple[Ranks, Ranks, Ranks]:
    """The place of each token, the token of each rank, and the rank of each token."""
    source = group.argsort(dim=-1, stable=True)
    order = torch.arange(group.shape[3], device=group.device).expand_as(source)
    rank = torch.zeros_like(source).scatter(3, source, order)
    return rank // window.size + window.gap * group, source, rank


def _blocks(
    source: Ranks, window: Window, tile: int
) -> tuple[Int[Tensor, "B H R N c"], Int[Tensor, "B H R N s"], Bool[Tensor, "N 1 s"]]:
    """Tokens of the queries and the keys of each block, and which of these keys there are."""
    T, size = source.shape[3], window.size
    c = size if size > 1 else max(1, min(tile, window.most))
    step = torch.arange(-window.most * size, c + max(0, -window.least) * size, device=source.device)
    # Of any length, never 1, so that the length stays free.
    N = (T + c - 1) // c + of_any_length(T)
    first = c * torch.arange(N, device=source.device)[:, None]
    i, j = first + step[window.most * size :][:c], first + step  # N c, N s: ranks
    inside = (j >= 0) & (j < T)
    # Copies of the last query have no rank, and so no place in the outputs.
    return source[..., i.clamp_max(T - 1)], source[..., j.clamp(0, T - 1)], inside[:, None]


def _allowed(
    mask: Mask, i: Int[Tensor, "B H R N c"], j: Int[Tensor, "B H R N s"], exclude_self: bool
) -> Bool[Tensor, "#B #H #R #N #c s"]:
    """What mask and `exclude_self` allow of these pairs."""
    allowed = i.new_ones((), dtype=torch.bool)
    if mask.valid is not None:
        valid = mask.valid[:, None, None].expand(*j.shape[:3], -1)
        allowed = allowed & _at(valid, j)[..., None, :]
    i, j = i[..., None], j[..., None, :]
    if mask.causal:
        allowed = allowed & (j <= i)
    if exclude_self:
        allowed = allowed & (i != j)
    if mask.pairwise is not None:
        allowed = allowed & pairs_at(mask.pairwise, i, j)
    return allowed


def pairs_at(pairwise: Bool[Tensor, "b h T S"], i: Places, j: Places) -> Bool[Tensor, "*n"]:
    """The pairs of these queries and keys; of -1, any."""
    place = i.clamp_min(0) * pairwise.shape[3] + j.clamp_min(0)
    flat = pairwise.expand(*place.shape[:2], -1, -1).flatten(2)
    return flat.gather(2, place.flatten(2)).unflatten(2, place.shape[2:])


def alone(v: OwnValues, mask: Mask) -> Mixed:
    """What a token gets that sees no other: its own value, if it may see itself."""
    if mask.pairwise is not None:
        v = v.masked_fill(~mask.pairwise.diagonal(dim1=2, dim2=3)[..., None], 0)
    return cleared(v, mask.valid)


def _at(z: Shaped[Tensor, "B H R T"], at: Int[Tensor, "B H R *n"]) -> Shaped[Tensor, "B H R *n"]:
    return z.gather(3, at.flatten(3)).unflatten(3, at.shape[3:])


def _dense(
    q, k, rows: slice, group, window: Window, mask: Mask, scale, exclude_self, count_once
) -> Float[Tensor, "B H t T"]:
    T, place = k.shape[2], places(group, window)[0]
    rounds = window.near(place[..., rows, None], place[..., None, :]).sum(2)
    allowed = mask.dense(T, T, pattern=rounds > 0, rows=rows)
    if exclude_self:
        itself = torch.eye(T, dtype=torch.bool, device=q.device)[rows]
        others = allowed & ~itself
        alone = mask.dense(T, T, device=q.device, rows=rows) & itself
        allowed = torch.where(others.any(-1, keepdim=True), others, alone)
    s = scores(q, k, scale)
    if not count_once:
        s = s + rounds.clamp_min(1).type_as(s).log()
    return masked_softmax(s, allowed)
