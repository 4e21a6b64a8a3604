"""Attention to a sorted block and the own one (see `sorted`), head by head: no sorted block of all heads is stored.

What is sorted of one head stays in the cache, is made again in the backward, and is written beside the blocks' own keys,
so that one softmax runs over both. Gradients of a block's 2 C keys wait there too: the sorted ones go to S and, through
S^T, to the blocks that were mixed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.functional.shared.numerics import LOG2_E
from regard.functional.sparse.tiles import TileMask, attend, merge

WEIGHTS = 1 << 19  # in a run of blocks: fewer and larger products are better for two threads


class Meeting(NamedTuple):
    """Blocks of queries, and which of their sorted keys and of their own they see; None: all."""

    blocks: slice
    allowed: Bool[Tensor, "#B #n #C D"] | None
    sides: slice = slice(0, 2)  # sorted, own

    def pairs(self, example: int, dtype: torch.dtype) -> TileMask | None:
        """[n 1 C D]"""
        if self.allowed is None:
            return None
        some = self.allowed[example if self.allowed.shape[0] > 1 else 0]
        return TileMask.of(some[:, None], dtype)


class SortedHeads(torch.autograd.Function):
    """softmax(scale q [S k; k]^T) [S v; v], block by block; a query without a key gives zero."""

    @staticmethod
    def forward(
        ctx,
        q: Float[Tensor, "B H N C K"],
        k: Float[Tensor, "B H N C K"],
        v: Float[Tensor, "B H N C V"],
        sorting: Float[Tensor, "B H N N"],
        parts: list[Meeting],
        meetings: Callable[[], list[Meeting]],
        scale: float,
    ) -> Float[Tensor, "B H N C V"]:
        """parts: of one softmax, merged by their sums, the first of every block. meetings: the same pairs, each row once."""
        wide = torch.promote_types(q.dtype, torch.float32)
        y, total = torch.empty_like(v), q.new_empty(q.shape[:4], dtype=wide)
        keys, values = _both(k), _both(v)
        for b in range(q.shape[0]):
            pairs = [part.pairs(b, q.dtype) for part in parts]
            for h in range(q.shape[1]):
                _fill(keys, sorting[b, h], k[b, h])
                _fill(values, sorting[b, h], v[b, h])
                for part, meet in zip(parts, pairs, strict=True):
                    some = b, h, part.blocks
                    near_k, near_v = (
                        z[part.blocks, part.sides].flatten(1, 2)[:, None] for z in (keys, values)
                    )
                    found, lse = attend(q[some][:, None], near_k, near_v, meet, scale, fused=True)
                    merge(y[some], total[some], found[:, 0], lse[:, 0], first=part is parts[0])
        ctx.save_for_backward(q, k, v, sorting, total)
        ctx.meetings, ctx.scale = meetings, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, sorting, total = ctx.saved_tensors
        dq, dk, dv, dsorting = (torch.empty_like(z) for z in (q, k, v, sorting))
        total = total.masked_fill(total == -torch.inf, 0).mul_(LOG2_E)
        keys, values, dkeys, dvalues = _both(k), _both(v), _both(k), _both(v)
        for b in range(q.shape[0]):
            pairs = [(m.blocks, m.pairs(b, total.dtype)) for m in ctx.meetings()]
            for h in range(q.shape[1]):
                S = sorting[b, h]
                _fill(keys, S, k[b, h])
                _fill(values, S, v[b, h])
                for some, meet in _runs(pairs, q.shape[3]):
                    rows = b, h, some
                    near_k, near_v, dnear_k, dnear_v = (
                        z[some].flatten(1, 2) for z in (keys, values, dkeys, dvalues)
                    )
                    out = dq[rows], dnear_k, dnear_v
                    given = dy[rows], q[rows], near_k, near_v, total[rows]
                    _gradients(*given, meet, ctx.scale, out)
                dsorting[b, h] = _dot(dkeys, keys) + _dot(dvalues, values)
                for dz, of in ((dkeys, dk), (dvalues, dv)):
                    to_sorted, to_own = dz.flatten(2).unbind(1)
                    to_own.addmm_(S.mT, to_sorted)
                    of[b, h] = dz[:, 1]
        return dq, dk, dv, dsorting, None, None, None


def _both(z: Float[Tensor, "B H N C K"]) -> Float[Tensor, "N 2 C K"]:
    """Room for a head's sorted blocks and its own, beside each other."""
    return z.new_empty(z.shape[2], 2, *z.shape[3:])


def _fill(
    both: Float[Tensor, "N 2 C K"], S: Float[Tensor, "N N"], own: Float[Tensor, "N C K"]
) -> None:
    both[:, 1] = own
    first, second = both.flatten(2).unbind(1)
    torch.mm(S, second, out=first)


def _dot(dz: Float[Tensor, "N 2 C K"], z: Float[Tensor, "N 2 C K"]) -> Float[Tensor, "N N"]:
    """The gradient of the sorting, from that of sorted blocks."""
    return dz[:, 0].flatten(1) @ z[:, 1].flatten(1).mT


def _runs(
    pairs: list[tuple[slice, TileMask | None]], C: int
) -> Iterator[tuple[slice, TileMask | None]]:
    """Some blocks at once, and what they may see."""
    most = max(1, WEIGHTS // (2 * C * C))
    for blocks, meet in pairs:
        for start in range(blocks.start, blocks.stop, most):
            some = slice(start, min(start + most, blocks.stop))
            if meet is None or len(meet.bias) == 1:
                yield some, meet
            else:
                here = slice(some.start - blocks.start, some.stop - blocks.start)
                yield some, TileMask(*(z[here] for z in meet))


def _gradients(
    dy: Float[Tensor, "n C V"],
    q: Float[Tensor, "n C K"],
    keys: Float[Tensor, "n D K"],
    values: Float[Tensor, "n D V"],
    total: Float[Tensor, "n C"],
    meet: TileMask | None,
    scale: float,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Of queries, keys and values, into `out`: five products in cache. total: log2 of the sum of exponentials."""
    dq, dkeys, dvalues = out
    dy, wide = dy.contiguous(), total.dtype
    weights = torch.bmm(q.to(wide) * (scale * LOG2_E), keys.to(wide).mT)
    if meet is not None:
        weights += meet.bias[:, 0]
    weights.sub_(total[..., None]).exp2_()
    torch.bmm(weights.to(dy.dtype).mT, dy, out=dvalues)
    dscores = torch.bmm(dy, values.mT).to(wide).mul_(weights)
    dscores.sub_(weights.mul_(dscores.sum(-1, keepdim=True)))
    dscores = dscores.mul_(scale).to(q.dtype)
    torch.bmm(dscores.mT, q, out=dkeys)
    dq.copy_(torch.bmm(dscores, keys))
