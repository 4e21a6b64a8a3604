"""Dense attention inside each cluster of tokens (see `functional.kmeans.within`), with gradients by hand; weights are not kept.

A few clusters at a time are fetched, computed and added to where their tokens are, in memory that is reused.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.fast.cpu.blocks import Cut, Workspace, cut, flat, heads_of, tiles
from regard.functional.kmeans import allowed_members
from regard.functional.rows import LOG2_E, Form, wide_type


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    queries: Int[Tensor, "B H N W"],
    keys: Int[Tensor, "B H N W"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    form: Form,
) -> Float[Tensor, "B H T V"]:
    every = mask.valid is None and mask.pairwise is None and not mask.causal and not exclude_self
    allowed = None if every else allowed_members(queries, keys, mask, exclude_self)
    queries, keys = (index.clamp(min=0) for index in (queries, keys))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q, k, v = (z.to(v.dtype) for z in (q, k, v))
    return _WithinClusters.apply(q, k, v, queries, keys, allowed, scale, cut(form, tile=32))


def _tokens(z: Float[Tensor, "B H T K"], heads: tuple[slice, slice]) -> Float[Tensor, "mT K"]:
    """Tokens of some examples and heads, numbered through."""
    return z[heads].flatten(0, 2).contiguous()


def _share(
    queries: Int[Tensor, "B H N w"],
    allowed: Bool[Tensor, "B H N w W"] | None,
    like: Float[Tensor, "B H T K"],
) -> Float[Tensor, "B H T 1"]:
    """1 / the number of clusters that give each token something."""
    index = queries.flatten(2)
    each = like.new_ones(()).expand(index.shape)
    if allowed is not None:
        each = allowed.any(-1).flatten(2).to(like.dtype)
    count = like.new_zeros(like.shape[:3]).scatter_add_(2, index, each)
    return count.clamp_(min=1).reciprocal_()[..., None]


class _Clusters(NamedTuple):
    """Some clusters, n in number, and their tokens."""

    clusters: slice
    queries: Int[Tensor, "nw"]
    keys: Int[Tensor, "nW"]
    allowed: Bool[Tensor, "n w W"] | None
    work: Workspace

    @property
    def n(self) -> int:
        return self.clusters.stop - self.clusters.start

    def of_queries(self, name: str, z: Float[Tensor, "mT K"]) -> Float[Tensor, "n w K"]:
        return self.work.rows(name, z, self.queries).view(self.n, -1, z.shape[1])

    def of_keys(self, name: str, z: Float[Tensor, "mT K"]) -> Float[Tensor, "n W K"]:
        return self.work.rows(name, z, self.keys).view(self.n, -1, z.shape[1])

    def fetch(self, q: Tensor, k: Tensor, v: Tensor, share: Tensor) -> tuple[Tensor, ...]:
        """share: zero for a query that is offered nothing."""
        s = self.of_queries("share", share)
        if self.allowed is not None:
            s *= self.allowed.any(-1, keepdim=True)
        return self.of_queries("a", q), self.of_keys("b", k), self.of_keys("c", v), s

    def scores(self, a: Tensor, b: Tensor, scale: float) -> Float[Tensor, "n w W"]:
        """In base 2, and in float32 at least: rounded to bfloat16, a score of 10 is off by 2 %."""
        wide = wide_type(a)
        scores = self.work.product("scores", a.to(wide), b.to(wide).mT, scale * LOG2_E)
        if self.allowed is None:
            return scores
        shown = self.allowed | ~self.allowed.any(-1, keepdim=True)
        return scores.masked_fill_(~shown, -math.inf)


def _clusters(
    queries: Int[Tensor, "B H N w"],
    keys: Int[Tensor, "B H N W"],
    allowed: Bool[Tensor, "B H N w W"] | None,
    sides: tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H S K"]],
    heads: tuple[slice, slice],
    how: Cut,
    work: Workspace,
) -> Iterator[_Clusters]:
    """Number of clusters that fit: their scores together take at most half of `cut.room`."""
    pairs = queries.shape[3] * keys.shape[3] * sides[0].element_size()
    of_queries, of_keys = (
        flat(index[heads].flatten(0, 1), z.shape[2]).view(-1, index.shape[3])
        for index, z in zip((queries, keys), sides, strict=True)
    )
    shown = None if allowed is None else allowed[heads].flatten(0, 2)
    for some in tiles(of_queries.shape[0], max(1, how.room // max(1, 2 * pairs))):
        yield _Clusters(
            some,
            of_queries[some].flatten(),
            of_keys[some].flatten(),
            None if shown is None else shown[some],
            work,
        )


class _WithinClusters(torch.autograd.Function):
    """softmax(scale q k^T) v. Kept for the backward: the log-sum-exp of each query of each cluster."""

    @staticmethod
    def forward(
        ctx,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B H S K"],
        v: Float[Tensor, "B H S V"],
        queries: Int[Tensor, "B H N w"],
        keys: Int[Tensor, "B H N W"],
        allowed: Bool[Tensor, "B H N w W"] | None,
        scale: float,
        how: Cut,
    ) -> Float[Tensor, "B H T V"]:
        share, work = _share(queries, allowed, q), Workspace()
        y = v.new_empty(*q.shape[:3], v.shape[3])
        lse = v.new_empty(*queries.shape, 1, dtype=wide_type(v))
        for heads in heads_of(how, q):
            sides = [_tokens(z, heads) for z in (q, k, v, share)]
            to, each_lse = _tokens(y, heads).zero_(), lse[heads].flatten(0, 2)
            for some in _clusters(queries, keys, allowed, (q, k), heads, how, work):
                a, b, c, s = some.fetch(*sides)
                scores = some.scores(a, b, scale)
                top = scores.amax(-1, keepdim=True)
                weights = scores.sub_(top).exp2_()
                total = weights.sum(-1, keepdim=True)
                mixed = work.product("mixed", weights.to(c.dtype), c).mul_(s.div_(total))
                to.index_add_(0, some.queries, mixed.flatten(0, 1))
                each_lse[some.clusters] = total.log2_().add_(top)
        ctx.save_for_backward(q, k, v, queries, keys, allowed, share, lse)
        ctx.scale, ctx.how = scale, how
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, queries, keys, allowed, share, lse = ctx.saved_tensors
        grads, work = [z.new_empty(z.shape) for z in (q, k, v)], Workspace()
        for heads in heads_of(ctx.how, q):
            sides, outer = [_tokens(z, heads) for z in (q, k, v, share)], _tokens(dy, heads)
            dq, dk, dv = (_tokens(z, heads).zero_() for z in grads)
            each_lse = lse[heads].flatten(0, 2)
            for some in _clusters(queries, keys, allowed, (q, k), heads, ctx.how, work):
                a, b, c, s = some.fetch(*sides)
                o = some.of_queries("o", outer).mul_(s)
                weights = some.scores(a, b, ctx.scale).sub_(each_lse[some.clusters]).exp2_()
                dweights = work.product("dweights", o, c.mT).to(weights.dtype)
                dc = work.product("product", weights.to(o.dtype).mT, o)
                dv.index_add_(0, some.keys, dc.flatten(0, 1))
                dscores = torch.ops.aten._softmax_backward_data(
                    dweights, weights, -1, weights.dtype
                ).to(a.dtype)
                db = work.product("product", dscores.mT, a, ctx.scale)
                dk.index_add_(0, some.keys, db.flatten(0, 1))
                da = work.product("product", dscores, b, ctx.scale)
                dq.index_add_(0, some.queries, da.flatten(0, 1))
        return *grads, *[None] * 5
