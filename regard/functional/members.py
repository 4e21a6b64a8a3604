"""Dense attention in each cluster of tokens, and the mean over a token's clusters; gradients by hand, weights not kept.

On a CPU the clusters of one row, batch x heads, are fetched, computed and put back before the next row's, and their
weights come in parts that stay in the cache: nothing of the size of all members is fresh memory.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.functional.ordered_blocks import PAIRS_ELSEWHERE, Ready, rows_of, wide_type
from regard.functional.rows import flat

PAIRS_ON_CPU = 1 << 17  # of a thread, in a tensor of weights: 0.5 MiB


class MemberAttention(torch.autograd.Function):
    """softmax(scale q k^T) v over the members of each cluster, of which `allowed` pairs meet.

    A token's output is the mean over the clusters that have it as a query and offer it a key; zero where none does.
    """

    @staticmethod
    def forward(
        ctx,
        q: Float[Tensor, "n T K"],
        k: Float[Tensor, "n S K"],
        v: Float[Tensor, "n S V"],
        queries: Int[Tensor, "n N w"],
        keys: Int[Tensor, "n N W"],
        allowed: Bool[Tensor, "n N w W"] | None,
        scale: float,
    ) -> Float[Tensor, "n T V"]:
        y = v.new_empty(*q.shape[:2], v.shape[2])
        some = None if allowed is None else allowed.any(-1)
        share = _share(queries, some, q)
        ready = Ready(_near(q))
        for i in _rows(q):
            a = _at(q[i], queries[i], ready, "a")
            b, c = _at(k[i], keys[i], ready, "b"), _at(v[i], keys[i], ready, "c")
            bias = None if allowed is None or some is None else allowed[i] | ~some[i][..., None]
            out = F.scaled_dot_product_attention(a, b, c, attn_mask=bias, scale=scale)
            _put(y[i], queries[i], out if some is None else out * some[i][..., None])
            y[i] *= share[i]
        ctx.save_for_backward(q, k, v, queries, keys, allowed, some, share)
        ctx.scale = scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, queries, keys, allowed, some, share = ctx.saved_tensors
        grads = [torch.empty_like(z) for z in (q, k, v)]
        ready = Ready(_near(q))
        for i in _rows(q):
            a = _at(q[i], queries[i], ready, "a")
            b, c = _at(k[i], keys[i], ready, "b"), _at(v[i], keys[i], ready, "c")
            o = _at(dy[i] * share[i], queries[i], ready, "o")
            bias = None
            if some is not None:
                o *= some[i][..., None]
                bias = (allowed[i] | ~some[i][..., None]).flatten(0, 1)
            a, b, c, o = (z.flatten(0, 1) for z in (a, b, c, o))
            sums = _gradients(a, b, c, o, bias, ctx.scale, ready)
            for grad, index, z in zip(grads, (queries, keys, keys), sums, strict=True):
                _put(grad[i], index[i], z)
        return *grads, None, None, None, None


def _gradients(
    a: Float[Tensor, "m w K"],
    b: Float[Tensor, "m W K"],
    c: Float[Tensor, "m W V"],
    o: Float[Tensor, "m w V"],
    bias: Bool[Tensor, "m w W"] | None,
    scale: float,
    ready: Ready,
) -> list[Tensor]:
    """Of softmax(scale a b^T) c by a, b and c, from o by the result, some clusters at a time."""
    sums = [ready("d" + name, z, *z.shape) for name, z in (("a", a), ("b", b), ("c", c))]
    size = _clusters(a, b)
    biases = bias.split(size) if bias is not None else [None] * len(a.split(size))
    for *part, meet in zip(*(z.split(size) for z in (a, b, c, o, *sums)), biases, strict=True):
        x, y, z, g, dx, dy, dz = part
        shape = x.shape[0], x.shape[1], y.shape[1]
        scores = ready("scores", x, *shape).baddbmm_(x, y.mT, beta=0, alpha=scale).to(wide_type(x))
        if meet is not None:
            scores.masked_fill_(~meet, -math.inf)
        weights = scores.softmax(-1)
        dweights = ready("dweights", g, *shape).baddbmm_(g, z.mT, beta=0).to(wide_type(x))
        dscores = torch.ops.aten._softmax_backward_data(dweights, weights, -1, weights.dtype)
        dscores = dscores.mul_(scale).to(x.dtype)
        dx.baddbmm_(dscores, y, beta=0)
        dy.baddbmm_(dscores.mT, x, beta=0)
        dz.baddbmm_(weights.to(g.dtype).mT, g, beta=0)
    return sums


def _share(
    queries: Int[Tensor, "n N w"], some: Bool[Tensor, "n N w"] | None, like: Float[Tensor, "n T K"]
) -> Float[Tensor, "n T 1"]:
    """1 / the number of clusters that give each token something."""
    index = queries.flatten(1)
    each = like.new_ones(()).expand(index.shape) if some is None else some.flatten(1).to(like.dtype)
    count = like.new_zeros(like.shape[:2]).scatter_add_(1, index, each)
    return count.clamp_(min=1).reciprocal_()[..., None]


def _near(z: Tensor) -> bool:
    return z.device.type in ("cpu", "meta") and not torch.compiler.is_compiling()


def _rows(z: Float[Tensor, "n T K"]) -> list[slice]:
    if not _near(z):
        return [slice(None)]
    return [slice(i, i + 1) for i in range(z.shape[0])]


def _clusters(a: Float[Tensor, "m w K"], b: Float[Tensor, "m W K"]) -> int:
    """At once."""
    room = PAIRS_ON_CPU * torch.get_num_threads() if _near(a) else PAIRS_ELSEWHERE
    return max(1, room // (a.shape[1] * b.shape[1]))


def _at(z: Float[Tensor, "m T K"], index: Int[Tensor, "m N w"], ready: Ready, name: str) -> Tensor:
    """[m N w K]"""
    found = rows_of(ready, z.flatten(0, 1), flat(index, z.shape[1]), name)
    return found.view(*index.shape, z.shape[2])


def _put(to: Float[Tensor, "m T K"], index: Int[Tensor, "m N w"], z: Tensor) -> None:
    """The transpose of `_at`."""
    to.zero_()
    to.view(-1, to.shape[2]).index_add_(0, flat(index, to.shape[1]), z.reshape(-1, to.shape[2]))
