"""Softmax attention along sorted orders: tokens are sorted by group, and a query sees the keys of near rank.

Blocks of sorted queries are multiplied by slices of sorted keys: time and memory are linear in the length, and nothing of
size [T T] is stored. All rounds add to the same sums; the backward recomputes weights from the final log-sum-exp.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.clustered.order import Order
from regard.functional.clustered.sorted_blocks import FAR, Rules, SortedRows, sorted_rows
from regard.functional.shared.blocks import by_tiles
from regard.functional.shared.implementation import Cut, Impl, cut
from regard.functional.shared.numerics import LOG2_E, wide_type
from regard.functional.shared.recompute import applied, twice_differentiable
from regard.functional.softmax.dense import masked_softmax


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    order: Order,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs of the order that the mask allows.

    exclude_self: a token sees itself only where no round offers it another key. count_once: a pair that several
    rounds offer has weight exp(score) once, and not once for each. With global tokens every query sees every key.
    """
    how = cut("clustered", impl, q)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    chosen = order, mask, scale, exclude_self, count_once

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H T V"]:
        return by_tiles(
            lambda rows, q, k, v: _weights(q, k, *chosen, rows) @ v, q.shape[2], how.tile, q, k, v
        )

    def fast(q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H T V"]:
        return _sorted_attention(q, k, v, *chosen, how)

    if mask.global_tokens is not None:
        return plain(q, k, v)
    given = (z.to(v.dtype) for z in (q, k, v))
    return twice_differentiable(fast, plain, *given, inlined=True)


def _sorted_attention(
    q, k, v, order: Order, mask: Mask, scale, exclude_self, count_once, how: Cut
) -> Float[Tensor, "B H T V"]:
    valid = None if mask.valid is None else mask.valid[:, None].expand(q.shape[:3]).flatten(0, 1)
    y = applied(
        _SortedAttention,
        *(z.flatten(0, 1).contiguous() for z in (q, k, v)),
        order.source.flatten(0, 1),
        order.place.flatten(0, 1),
        valid,
        _may_see_itself(v, mask) if exclude_self else None,
        None if mask.pairwise is None else mask.pairwise.expand(*q.shape[:2], -1, -1),
        order.reach,
        Rules(exclude_self, count_once, mask.causal and not order.reach.only_earlier),
        scale,
        how,
    )
    return y.unflatten(0, q.shape[:2])


def weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    order: Order,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
) -> Float[Tensor, "B H T T"]:
    """The weights that `attend` applies; rows without a key are zero."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _weights(q, k, order, mask, scale, exclude_self, count_once, slice(0, q.shape[2]))


def _weights(
    q, k, order: Order, mask: Mask, scale, exclude_self, count_once, rows: slice
) -> Float[Tensor, "B H t T"]:
    T = q.shape[2]
    count = order.rounds(rows)
    allowed = mask.dense(T, T, pattern=count > 0, rows=rows)
    if exclude_self:
        oneself = torch.eye(T, dtype=torch.bool, device=q.device)[rows]
        others = allowed & ~oneself
        fallback = mask.dense(T, T, device=q.device, rows=rows) & oneself
        allowed = torch.where(others.any(-1, keepdim=True), others, fallback)
    scores = scale * q[:, :, rows] @ k.transpose(-1, -2)
    if not count_once:
        scores = scores + count.clamp(min=1).to(scores.dtype).log()
    return masked_softmax(scores, allowed)


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
            top = None if how.readable and _small(queries, keys) else _highest(some, queries, keys)
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
