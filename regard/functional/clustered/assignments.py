"""Dense attention in each cluster of tokens, and the mean over a token's clusters; gradients by hand, weights not kept.

On a CPU a few clusters at a time are fetched, computed and added to where their tokens are, all in the cache: nothing of
the size of all members, weights or gradients of routes is fresh memory.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.functional.clustered.normalised import Routes, through_routes
from regard.functional.clustered.sorted_blocks import PAIRS_ELSEWHERE, Ready, rows_of, wide_type
from regard.functional.shared.blocks import flat, heads_of, near
from regard.functional.shared.numerics import LOG2_E

PAIRS_ON_CPU = 1 << 17  # of a thread, in a tensor of weights: 0.5 MiB


class MemberAttention(torch.autograd.Function):
    """softmax(scale q k^T) v over the members of each cluster, of which `allowed` pairs meet.

    A token's output is the mean over the clusters that have it as a query and offer it a key; zero where none does.
    Where routes of q and k are given, scores are made of them. Kept for the backward: the log-sum-exp of each member.
    """

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
        routes_q: Float[Tensor, "B H T K"] | None,
        rstd_q: Float[Tensor, "B H T 1"] | None,
        routes_k: Float[Tensor, "B H S K"] | None,
        rstd_k: Float[Tensor, "B H S 1"] | None,
    ) -> Float[Tensor, "B H T V"]:
        share, ready = _share(queries, allowed, q), Ready(near(q))
        y = v.new_empty(*q.shape[:3], v.shape[3])
        lse = v.new_empty(*queries.shape, 1, dtype=wide_type(v))
        a_of = q if routes_q is None else routes_q.to(v.dtype)
        b_of = k if routes_k is None else routes_k.to(v.dtype)
        for heads in heads_of(q):
            sides = [_tokens(z, heads) for z in (a_of, b_of, v, share)]
            to, each_lse = _tokens(y, heads).zero_(), lse[heads].flatten(0, 2)
            for part in _parts(queries, keys, allowed, (q.shape[2], k.shape[2]), heads, ready):
                a, b, c, s = part.fetch(*sides)
                scores = part.scores(a, b, scale)
                top = scores.amax(-1, keepdim=True)
                weights = scores.sub_(top).exp2_()
                total = weights.sum(-1, keepdim=True)
                mixed = part.product("mixed", weights.to(c.dtype), c).mul_(s.div_(total))
                to.index_add_(0, part.asks, mixed.flatten(0, 1))
                each_lse[part.clusters] = total.log2_().add_(top)
        ctx.save_for_backward(a_of, b_of, v, queries, keys, allowed, share, lse, rstd_q, rstd_k)
        ctx.scale = scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        a_of, b_of, v, queries, keys, allowed, share, lse, rstd_q, rstd_k = ctx.saved_tensors
        grads, ready = [z.new_empty(z.shape) for z in (a_of, b_of, v)], Ready(near(v))
        lengths = a_of.shape[2], b_of.shape[2]
        for heads in heads_of(a_of):
            sides, outer = [_tokens(z, heads) for z in (a_of, b_of, v, share)], _tokens(dy, heads)
            dq, dk, dv = (_tokens(z, heads).zero_() for z in grads)
            each_lse = lse[heads].flatten(0, 2)
            to_q, to_k = (None if z is None else _tokens(z, heads) for z in (rstd_q, rstd_k))
            for part in _parts(queries, keys, allowed, lengths, heads, ready):
                a, b, c, s = part.fetch(*sides)
                o = part.of_queries(outer, "o").mul_(s)
                weights = part.scores(a, b, ctx.scale).sub_(each_lse[part.clusters]).exp2_()
                dweights = part.product("dweights", o, c.mT).to(weights.dtype)
                dc = part.product("product", weights.to(o.dtype).mT, o)
                dv.index_add_(0, part.offers, dc.flatten(0, 1))
                dscores = torch.ops.aten._softmax_backward_data(
                    dweights, weights, -1, weights.dtype
                ).to(a.dtype)
                db = part.product("product", dscores.mT, a, ctx.scale)
                if to_k is not None:
                    db = through_routes(Routes(b, part.of_keys(to_k, "rstd")), db)
                dk.index_add_(0, part.offers, db.flatten(0, 1))
                da = part.product("product", dscores, b, ctx.scale)
                if to_q is not None:
                    da = through_routes(Routes(a, part.of_queries(to_q, "rstd")), da)
                dq.index_add_(0, part.asks, da.flatten(0, 1))
        return *grads, *[None] * 8


def _tokens(z: Float[Tensor, "B H T K"], heads: tuple[slice, slice]) -> Float[Tensor, "mT K"]:
    """Of some examples and heads, m in number, on one line."""
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


class _Part(NamedTuple):
    """Clusters n and their members, as tokens on a line."""

    clusters: slice
    asks: Int[Tensor, "nw"]
    offers: Int[Tensor, "nW"]
    allowed: Bool[Tensor, "n w W"] | None
    w: int
    W: int
    ready: Ready

    def of_queries(self, z: Float[Tensor, "mT K"], name: str) -> Float[Tensor, "n w K"]:
        return rows_of(self.ready, z, self.asks, name).view(-1, self.w, z.shape[1])

    def of_keys(self, z: Float[Tensor, "mT K"], name: str) -> Float[Tensor, "n W K"]:
        return rows_of(self.ready, z, self.offers, name).view(-1, self.W, z.shape[1])

    def product(self, name: str, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        out = self.ready(name, a, a.shape[0], a.shape[1], b.shape[2])
        return out.baddbmm_(a, b, beta=0, alpha=scale)

    def fetch(self, q: Tensor, k: Tensor, v: Tensor, share: Tensor) -> tuple[Tensor, ...]:
        """share: zero for a query that is offered nothing."""
        s = self.of_queries(share, "share")
        if self.allowed is not None:
            s *= self.allowed.any(-1, keepdim=True)
        return self.of_queries(q, "a"), self.of_keys(k, "b"), self.of_keys(v, "c"), s

    def scores(self, a: Tensor, b: Tensor, scale: float) -> Float[Tensor, "n w W"]:
        """In base 2, and in float32 at least: rounded to bfloat16, a score of 10 is off by 2 %."""
        wide = wide_type(a)
        scores = self.product("scores", a.to(wide), b.to(wide).mT, scale * LOG2_E)
        if self.allowed is None:
            return scores
        meet = self.allowed | ~self.allowed.any(-1, keepdim=True)
        return scores.masked_fill_(~meet, -math.inf)


def _parts(
    queries: Int[Tensor, "B H N w"],
    keys: Int[Tensor, "B H N W"],
    allowed: Bool[Tensor, "B H N w W"] | None,
    lengths: tuple[int, int],
    heads: tuple[slice, slice],
    ready: Ready,
) -> Iterator[_Part]:
    w, W = queries.shape[3], keys.shape[3]
    room = PAIRS_ON_CPU * torch.get_num_threads() if near(queries) else PAIRS_ELSEWHERE
    size = max(1, room // (w * W))
    asks, offers = (
        flat(index[heads].flatten(0, 1), T).view(-1, index.shape[3])
        for index, T in zip((queries, keys), lengths, strict=True)
    )
    meet = None if allowed is None else allowed[heads].flatten(0, 2)
    for n in range(0, asks.shape[0], size):
        some = slice(n, n + size)
        yield _Part(
            some,
            asks[some].flatten(),
            offers[some].flatten(),
            None if meet is None else meet[some],
            w,
            W,
            ready,
        )
