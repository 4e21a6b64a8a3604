"""Softmax attention along sorted orders: tokens are sorted by group, and a query meets the keys of near rank.

Blocks of sorted queries meet slices of sorted keys: time and memory are linear in the length, and nothing of size [T T]
is stored. Rounds are merged by their row maxima and sums; the backward recomputes weights from the final log-sum-exp.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.order import Order
from regard.functional.ordered_blocks import FAR, Plan, Rules
from regard.functional.rows import rows_of_rounds
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
        order.reach,
        exclude_self,
        count_once,
        mask.causal and not order.only_earlier,
    )
    stands = order.stands
    if mask.valid is not None:  # absent keys stand where nobody reaches
        stands = stands.masked_fill(~mask.valid[:, None, None], math.inf)
    y = _OrderedAttention.apply(
        *(z.to(v.dtype).flatten(0, 1).contiguous() for z in (q, k, v)),
        *(z.flatten(0, 1) for z in (order.source, order.rank, order.asks, stands)),
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
    """B and H are one axis N, of which some rows are taken at once: on a CPU one head, whose tensors stay in the cache.

    Scores are in base 2, as exp2 is the exponential that is fast for all numbers.
    """

    @staticmethod
    def forward(ctx, q, k, v, source, rank, asks, stands, alone, pairwise, rules, scale):
        plan = Plan(source, asks, stands, pairwise, rules)
        wide = torch.promote_types(q.dtype, torch.float32)
        (N, R, T), n, L = rank.shape, plan.rows, plan.padded
        y, total = torch.empty_like(v), q.new_empty(N, T, dtype=wide)
        mixed = v.new_empty(R, n, L, v.shape[2], dtype=wide)
        top, mass = (v.new_empty(R, n, L, 1, dtype=wide) for _ in range(2))
        for rows in plan.groups():
            for r in range(R):
                round_ = plan.round(rows, r)
                queries, keys, values = round_.queries(q), round_.keys(k), round_.keys(v)
                mixed_r, top_r, mass_r = (
                    z[r].view(-1, rules.block, z.shape[3]) for z in (mixed, top, mass)
                )
                for some in plan.parts():
                    scores = round_.scores(queries[some], keys[some], some, scale)
                    high = scores.amax(-1, keepdim=True)
                    weights = scores.sub_(high).exp2_()
                    top_r[some], mass_r[some] = high, weights.sum(-1, keepdim=True)
                    _product(weights.to(v.dtype), values[some], out=mixed_r[some])
            at = rank[rows].long()
            share, total[rows] = _merged(
                *(z[..., 0].transpose(0, 1).gather(2, at) for z in (top, mass))
            )
            merged = rows_of_rounds(mixed, at, share)
            if alone is not None:
                merged = torch.where(_falls_back(total, alone, rows), v[rows], merged)
            y[rows] = merged
        ctx.save_for_backward(q, k, v, y, total, source, rank, asks, stands, alone, pairwise)
        ctx.rules, ctx.scale = rules, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, total, source, rank, asks, stands, alone, pairwise = ctx.saved_tensors
        rules, scale, wide = ctx.rules, ctx.scale, total.dtype
        plan = Plan(source, asks, stands, pairwise, rules)
        R, n, L = rank.shape[1], plan.rows, plan.padded
        dy = dy.contiguous()
        grads = [torch.empty_like(z) for z in (q, k, v)]
        ahead, behind = rules.before * rules.block, rules.after * rules.block
        sums = [
            z.new_empty(R, n, length, z.shape[2], dtype=wide)
            for z, length in ((q, L), *((z, ahead + L + behind) for z in (k, v)))
        ]
        for rows in plan.groups():
            delta = (dy[rows] * y[rows]).sum(-1, dtype=wide)
            for r in range(R):
                round_ = plan.round(rows, r)
                queries, keys, values = round_.queries(q), round_.keys(k), round_.keys(v)
                outer, shift = round_.queries(dy), round_.numbers(delta, 0.0)
                lse = round_.numbers(total[rows], math.inf)
                dq, dk, dv = (z[r] for z in sums)
                dq = dq.view(-1, rules.block, dq.shape[2])
                for z in (dk, dv):
                    z.zero_()
                for some in plan.parts():
                    scores = round_.scores(queries[some], keys[some], some, scale)
                    weights = scores.sub_(lse[some]).exp2_()
                    dscores = (outer[some] @ values[some].transpose(1, 2)).to(wide)
                    dscores = dscores.sub_(shift[some]).mul_(weights).mul_(scale).to(q.dtype)
                    weights = weights.to(q.dtype)
                    _product(dscores, keys[some], out=dq[some])
                    round_.add(dscores.transpose(1, 2) @ queries[some], some, to=dk)
                    round_.add(weights.transpose(1, 2) @ outer[some], some, to=dv)
            at = rank[rows].long()
            for grad, parts, first in zip(grads, sums, (0, ahead, ahead), strict=True):
                grad[rows] = rows_of_rounds(parts, at + first)
            if alone is not None:
                grads[2][rows] += dy[rows] * _falls_back(total, alone, rows)
        return *grads, *[None] * 8


def _product(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    if a.dtype == out.dtype:
        out.baddbmm_(a, b, beta=0)
    else:
        out.copy_(a @ b)


def _merged(top: Float[Tensor, "n R T"], mass: Float[Tensor, "n R T"]) -> tuple[Tensor, Tensor]:
    """Weight of each round's sums, and the log-sum-exp of all: inf where no round has a pair that is allowed."""
    most = top.amax(1, keepdim=True)
    share = (top - most).exp2() * (top > -FAR / 2)
    whole = (share * mass).sum(1, keepdim=True)
    some = whole > 0
    lse = torch.where(some, most + whole.log2(), math.inf)
    return share / torch.where(some, whole, 1), lse[:, 0]


def _falls_back(total: Float[Tensor, "N T"], alone: Bool[Tensor, "N T"], rows: slice) -> Tensor:
    """[n T 1]: queries that see themselves, as they see nothing else."""
    return ((total[rows] == math.inf) & alone[rows])[..., None]
