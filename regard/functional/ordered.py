"""Softmax attention along sorted orders: tokens are sorted by group, and a query meets the keys of near rank.

Blocks of sorted queries meet slices of sorted keys: time and memory are linear in the length, and nothing of size [T T]
is stored. All rounds add to the same sums; the backward recomputes weights from the final log-sum-exp.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.exponential import LOG2_E
from regard.functional.order import Order
from regard.functional.ordered_blocks import FAR, Part, Plan, Rules
from regard.functional.softmax import masked_softmax

ROWS = 256  # queries whose weights over all keys are held at once, where global tokens are given


def ordered_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    order: Order,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs of the order that the mask allows.

    exclude_self: a token sees itself only where no round offers it another key. count_once: a pair that several
    rounds offer has weight exp(score) once, and not once for each. Global tokens make every query meet every key.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if mask.global_tokens is not None:
        return _all_rows(q, k, v, order, mask, scale, exclude_self, count_once)
    rules = Rules(
        order.block,
        order.before,
        order.after,
        order.shift,
        order.reach,
        exclude_self,
        count_once,
        mask.causal and not order.only_earlier,
    )
    valid = None if mask.valid is None else mask.valid[:, None].expand(q.shape[:3]).flatten(0, 1)
    y = _OrderedAttention.apply(
        *(z.to(v.dtype).flatten(0, 1).contiguous() for z in (q, k, v)),
        *(z.flatten(0, 1) for z in (order.source, order.place)),
        valid,
        _may_see_itself(v, mask) if exclude_self else None,
        None if mask.pairwise is None else mask.pairwise.expand(*q.shape[:2], -1, -1),
        rules,
        scale,
    )
    return y.unflatten(0, q.shape[:2])


def ordered_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    order: Order,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
) -> Float[Tensor, "B H T T"]:
    """The weights that `ordered_attention` applies; rows without a key are zero."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    rows = slice(0, q.shape[2])
    return _weights(q, k, order, mask, scale, exclude_self, count_once, rows)


def _may_see_itself(v: Float[Tensor, "B H T V"], mask: Mask) -> Bool[Tensor, "N T"]:
    may = torch.ones(v.shape[:3], dtype=torch.bool, device=v.device)
    if mask.pairwise is not None:
        may = may & mask.pairwise.diagonal(dim1=2, dim2=3)
    if mask.valid is not None:
        may = may & mask.valid[:, None]
    return may.flatten(0, 1)


def _weights(
    q, k, order: Order, mask: Mask, scale, exclude_self, count_once, rows: slice
) -> Tensor:
    T = q.shape[2]
    count = order.meetings(rows)
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


def _all_rows(q, k, v, order: Order, mask: Mask, scale, exclude_self, count_once) -> Tensor:
    parts = []
    for start in range(0, q.shape[2], ROWS):
        rows = slice(start, min(start + ROWS, q.shape[2]))
        parts.append(_weights(q, k, order, mask, scale, exclude_self, count_once, rows) @ v)
    return torch.cat(parts, dim=2)


class _OrderedAttention(torch.autograd.Function):
    """B and H are one axis N. Scores are in base 2, as exp2 is the exponential that is fast for all numbers.

    Each part of a round is added to its tokens at once: references of the exponents are one for all rounds.
    """

    @staticmethod
    def forward(ctx, q, k, v, source, place, valid, alone, pairwise, rules, scale):
        plan = Plan(source, place, valid, pairwise, rules)
        wide = torch.promote_types(q.dtype, torch.float32)
        (N, T, V), n = v.shape, plan.rows
        y, total = torch.empty_like(v), q.new_empty(N, T, dtype=wide)
        mixed, mass = v.new_empty(n * T, V, dtype=wide), v.new_empty(n * T, dtype=wide)
        for rows in plan.groups():
            queries, keys, values = (z[rows].flatten(0, 1) for z in (q, k, v))
            top = _references(plan, rows, queries, keys, scale)
            mixed.zero_()
            mass.zero_()
            for part in plan.parts(rows):
                scores = _scores(part, queries, keys, scale)
                if top is not None:
                    scores.sub_(part.per_query(top))
                weights = scores.exp2_()
                mass.index_add_(0, part.queries, weights.sum(-1).flatten())
                values_of = part.of_keys(values, "keys")
                part.add_to_queries(mixed, _product(part, weights.to(v.dtype), values_of))
            some = mass > 0
            mixed.div_(torch.where(some, mass, 1)[:, None])
            lse = mass.log2() if top is None else mass.log2() + top
            total[rows] = torch.where(some, lse, math.inf).unflatten(0, (n, T))
            y[rows] = mixed.unflatten(0, (n, T))
            if alone is not None:
                y[rows] = torch.where(_falls_back(total, alone, rows), v[rows], y[rows])
        ctx.save_for_backward(q, k, v, y, total, source, place, valid, alone, pairwise)
        ctx.rules, ctx.scale = rules, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, total, source, place, valid, alone, pairwise = ctx.saved_tensors
        plan, scale, wide = Plan(source, place, valid, pairwise, ctx.rules), ctx.scale, total.dtype
        n, T = plan.rows, q.shape[1]
        dy = dy.contiguous()
        grads = [torch.empty_like(z) for z in (q, k, v)]
        dq, dk, dv = sums = [z.new_empty(n * T, z.shape[2], dtype=wide) for z in (q, k, v)]
        for rows in plan.groups():
            queries, keys, values, outer = (z[rows].flatten(0, 1) for z in (q, k, v, dy))
            delta = (dy[rows] * y[rows]).sum(-1, dtype=wide).flatten()
            lse = total[rows].flatten()
            for z in sums:
                z.zero_()
            for part in plan.parts(rows):
                a, b, o = (
                    part.of_queries(queries, "queries"),
                    part.of_keys(keys, "keys"),
                    part.of_queries(outer, "outer"),
                )
                weights = part.scores(a, b, scale).sub_(part.per_query(lse)).exp2_()
                dscores = _product(
                    part, o, part.of_keys(values, "values").transpose(1, 2), "dscores"
                )
                dscores = dscores.to(wide).sub_(part.per_query(delta)).mul_(weights).to(q.dtype)
                weights = weights.to(q.dtype)
                part.add_to_queries(dq, _product(part, dscores, b))
                part.add_to_keys(dk, _product(part, dscores.transpose(1, 2), a))
                part.add_to_keys(dv, _product(part, weights.transpose(1, 2), o))
            for grad, z, factor in zip(grads, sums, (scale, scale, 1), strict=True):
                grad[rows] = z.mul_(factor).unflatten(0, (n, T))
            if alone is not None:
                grads[2][rows] += dy[rows] * _falls_back(total, alone, rows)
        return *grads, *[None] * 7


def _references(
    plan: Plan, rows: slice, q: Float[Tensor, "nT K"], k: Float[Tensor, "nT K"], scale: float
) -> Float[Tensor, "nT"] | None:
    """What each query's exponents are relative to: their maximum, or nothing where |q| |k| keeps all of them small."""
    if q.is_meta:
        return None
    if not torch.compiler.is_compiling():
        longest = [float(torch.linalg.vector_norm(z, dim=-1).amax()) for z in (q, k)]
        exponent = longest[0] * longest[1] * abs(scale) * LOG2_E
        if exponent < math.log2(torch.finfo(q.dtype).max) / 2:
            return None
    top = q.new_full(q.shape[:1], -FAR, dtype=torch.promote_types(q.dtype, torch.float32))
    for part in plan.parts(rows):
        highest = _scores(part, q, k, scale).amax(-1).flatten()
        top.scatter_reduce_(0, part.queries, highest, "amax")
    return torch.where(top > -FAR / 2, top, 0)


def _scores(part: Part, q: Float[Tensor, "nT K"], k: Float[Tensor, "nT K"], scale: float) -> Tensor:
    return part.scores(part.of_queries(q, "queries"), part.of_keys(k, "keys"), scale)


def _product(
    part: Part, a: Float[Tensor, "g i j"], b: Float[Tensor, "g j l"], name: str = "rows"
) -> Tensor:
    return part.ready(name, a, a.shape[0], a.shape[1], b.shape[2]).baddbmm_(a, b, beta=0)


def _falls_back(total: Float[Tensor, "N T"], alone: Bool[Tensor, "N T"], rows: slice) -> Tensor:
    """[n T 1]: queries that see themselves, as they see nothing else."""
    return ((total[rows] == math.inf) & alone[rows])[..., None]
