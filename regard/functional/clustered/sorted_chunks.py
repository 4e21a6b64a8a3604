"""Softmax attention along sorted orders: tokens are sorted by group, and a query meets the keys of near rank.

Blocks of sorted queries meet slices of sorted keys: time and memory are linear in the length, and nothing of size [T T]
is stored. All rounds add to the same sums; the backward recomputes weights from the final log-sum-exp.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.clustered.normalise import norms, through_units, unit, units
from regard.functional.clustered.normalised import Routes, route, through_routes
from regard.functional.clustered.order import Order
from regard.functional.clustered.sorted_blocks import FAR, Line, Part, Plan, Rules, wide_type
from regard.functional.shared.numerics import LOG2_E
from regard.functional.softmax.dense import masked_softmax

ROWS = 256  # queries whose weights over all keys are held at once, where global tokens are given


def ordered_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"] | None,
    v: Float[Tensor, "B H T V"],
    *,
    order: Order,
    routes: tuple[Routes, Routes] | None = None,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs of the order that the mask allows. k = None: the queries at unit norm.
    routes: of q and k, if these are what the scores are made of.

    exclude_self: a token sees itself only where no round offers it another key. count_once: a pair that several
    rounds offer has weight exp(score) once, and not once for each. Global tokens make every query meet every key.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if mask.global_tokens is not None:
        k = unit(q) if k is None else k
        if routes is not None:
            q, k = route(q), route(k)
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
    made = [None] * 4 if routes is None else [z for side in routes for z in side]
    y = _OrderedAttention.apply(
        *(
            None if z is None else z.to(v.dtype).flatten(0, 1).contiguous()
            for z in (q, k, v, *made)
        ),
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
    """B and H are one axis N. Where routes are given, q and k are only what the gradients are of. Scores are in base 2, as exp2 is the exponential that is fast for all numbers.

    References of the exponents are one for all rounds, whose sums can so be added.
    """

    @staticmethod
    def forward(
        ctx,
        q,
        k,
        v,
        routes_q,
        rstd_q,
        routes_k,
        rstd_k,
        source,
        place,
        valid,
        alone,
        pairwise,
        rules,
        scale,
    ):
        q, k = (q, k) if routes_q is None else (routes_q, routes_k)
        plan = Plan(source, place, valid, pairwise, rules, v.shape[2])
        y, total = torch.empty_like(v), q.new_empty(v.shape[:2], dtype=wide_type(q))
        for line in plan.lines():
            rows = line.rows
            queries, values = (z[rows].flatten(0, 1) for z in (q, v))
            keys = units(queries)[0] if k is None else k[rows].flatten(0, 1)
            queries = queries * (scale * LOG2_E)
            top = _references(line, queries, keys)
            scores = _Products(queries, keys, top)
            sums, masses = line.sums("sums", v, v.shape[2]), line.sums("masses", total, 1)[..., 0]
            for round_ in line.rounds():
                for part in round_.parts():
                    weights = scores.near(part, *scores.blocks(part)).exp2_()
                    masses[part.blocks] = weights.sum(-1)
                    values_of = part.of_keys(values, "b")
                    sums[part.blocks].baddbmm_(weights.to(v.dtype), values_of, beta=0)
            mixed = line.of_tokens(sums, total.dtype)
            mass = line.each_of_tokens(masses).sum(1, keepdim=True)
            some = mass > 0
            mixed.div_(torch.where(some, mass, 1))
            lse = mass.log2() if top is None else mass.log2() + top
            lse = torch.where(some, lse, math.inf)
            if alone is not None:
                # Who sees nothing else sees itself.
                itself = ~some & alone[rows].flatten()[:, None]
                mixed.addcmul_(itself.to(mixed.dtype), values)
            total[rows] = lse.view(-1, total.shape[1])
            y[rows] = mixed.view(-1, *v.shape[1:]).to(y.dtype)
        ctx.save_for_backward(
            q, k, v, y, total, source, place, valid, alone, pairwise, rstd_q, rstd_k
        )
        ctx.rules, ctx.scale = rules, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, total, source, place, valid, alone, pairwise, *rstds = ctx.saved_tensors
        plan = Plan(source, place, valid, pairwise, ctx.rules, v.shape[2])
        wide, dy = total.dtype, dy.contiguous()
        grads = [None if z is None else torch.empty_like(z) for z in (q, k, v)]
        for line in plan.lines():
            rows = line.rows
            queries, values, outer = (z[rows].flatten(0, 1) for z in (q, v, dy))
            keys, norm = units(queries) if k is None else (k[rows].flatten(0, 1), None)
            lse = total[rows].flatten()[:, None].clamp(max=FAR)
            delta = (outer * y[rows].flatten(0, 1)).sum(-1, keepdim=True, dtype=wide)
            scores = _Products(queries * (ctx.scale * LOG2_E), keys, lse)
            passed = _Products(outer, values, delta, "passed ")
            sums = [line.sums(n, z, z.shape[2]) for n, z in (("dq", q), ("dk", q), ("dv", v))]
            sorted_dq, sorted_dk, sorted_dv = sums
            for round_ in line.rounds():
                for part in round_.parts():
                    a, b = scores.blocks(part)
                    o, x = passed.blocks(part)
                    weights = scores.near(part, a, b).exp2_()
                    dscores = passed.all(part, o, x).mul_(weights).to(q.dtype)
                    sorted_dq[part.blocks].baddbmm_(dscores, b[..., : q.shape[2]], beta=0)
                    part.add_to_keys(sorted_dk, dscores, a[..., : q.shape[2]])
                    part.add_to_keys(sorted_dv, weights.to(v.dtype), o[..., : v.shape[2]])
            dq, dk, dv = (line.of_tokens(z, wide) for z in sums)
            dq.mul_(ctx.scale)
            dk.mul_(1 / LOG2_E)  # of queries times scale log2 e
            if norm is not None:
                dq.add_(through_units(keys, norm, dk))
            if rstds[0] is not None:
                dq, dk = (
                    through_routes(Routes(r.to(wide), z[rows].flatten(0, 1)), d)
                    for r, z, d in zip((queries, keys), rstds, (dq, dk), strict=True)
                )
            if alone is not None:
                itself = (total[rows] == math.inf) & alone[rows]
                dv.addcmul_(itself.flatten()[:, None].to(wide), outer)
            for grad, z in zip(grads, (dq, dk, dv), strict=True):
                if grad is not None:
                    grad[rows] = z.view(-1, *grad.shape[1:]).to(grad.dtype)
        return *grads, *[None] * 11


class _Products:
    """a b^T - less for the blocks of a part: [a, -less] [b, 1]^T, so that no pass over the pairs subtracts.

    Where `less` is of a wider type than a and b it would be rounded as their column, and is subtracted afterwards.
    """

    def __init__(
        self,
        a: Float[Tensor, "nT K"],
        b: Float[Tensor, "nT K"],
        less: Float[Tensor, "nT 1"] | None = None,
        name: str = "",
    ):
        self.name, self.less, self.wide = name, None, wide_type(a)
        if less is not None and less.dtype == a.dtype:
            a, b = torch.cat((a, -less), 1), F.pad(b, (0, 1), value=1)
        else:
            self.less = less
        self.a, self.b = a, b

    def blocks(self, part: Part) -> tuple[Tensor, Tensor]:
        return part.of_queries(self.a, self.name + "a"), part.of_keys(self.b, self.name + "b")

    def all(
        self, part: Part, a: Float[Tensor, "g c K"], b: Float[Tensor, "g w K"], name: str = "pairs"
    ) -> Tensor:
        out = part.ready(name, a, a.shape[0], a.shape[1], b.shape[1])
        return self._less(part, out.baddbmm_(a, b.transpose(1, 2), beta=0).to(self.wide))

    def near(self, part: Part, a: Float[Tensor, "g c K"], b: Float[Tensor, "g w K"]) -> Tensor:
        """Far below all others where a pair is not allowed."""
        far = part.far()
        if far.dtype == a.dtype:
            return self._less(part, far.baddbmm_(a, b.transpose(1, 2), beta=-FAR))
        return self.all(part, a, b, "far").sub_(far, alpha=FAR)

    def _less(self, part: Part, products: Float[Tensor, "g c w"]) -> Tensor:
        return products if self.less is None else products.sub_(part.of_queries(self.less, "less"))


def _references(
    line: Line, a: Float[Tensor, "nT K"], b: Float[Tensor, "nT K"]
) -> Float[Tensor, "nT 1"] | None:
    """What each query's exponents are relative to: their maximum, or nothing where |a| |b| keeps all of them small."""
    if a.is_meta:
        return None
    if not torch.compiler.is_compiling():
        exponent = math.prod(float(norms(z).amax()) for z in (a, b))
        if exponent < math.log2(torch.finfo(a.dtype).max) / 2:
            return None
    scores = _Products(a, b)
    highest = line.sums("masses", a.new_empty(0, dtype=wide_type(a)), 1)[..., 0]
    for round_ in line.rounds():
        for part in round_.parts():
            highest[part.blocks] = scores.near(part, *scores.blocks(part)).amax(-1)
    top = line.each_of_tokens(highest).amax(1, keepdim=True)
    return torch.where(top > -FAR / 2, top, 0)
