"""Mixed chunk attention behind a gate (FLASH, Hua et al. 2022, arXiv 2202.10447), by tiles of whole chunks.

    q, k, q', k' = rope(silu(z) gamma_n + beta_n),  n = 0 .. 3,        v = silu(p)
    y_i = sum_j c_i relu(s q_i k_j + b_ij)^2 v_j  +  a_i q'_i M,        g_i = silu(u_i) y_i

The sum runs over the keys that i sees in its chunk; M = sum_j k'_j v_j^T over all tokens, or, where causal, over the
chunks before. A tile holds the pairs of one or more whole chunks; a step is one tile, or, without an order, one for each
thread. Its views, weights and silus stay in cache and are computed again in the backward, which keeps y and M. Chunks of
one tile use pairs q'_i k'_j in the place of M.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.functional.positions.rotary import cos_sin, turned
from regard.functional.shared.implementation import Cut, autocast_dtype
from regard.functional.shared.numerics import add_product, wide_type
from regard.functional.shared.recompute import twice_differentiable

Place = tuple[slice, slice]  # examples and tokens of a step
silu_backward = torch.ops.aten.silu_backward


class Rule(NamedTuple):
    """Everything that is not learned, and how the work is cut."""

    how: Cut
    chunk_size: int
    causal: bool
    scale: float  # s
    c: Float[Tensor, "b T"]
    a: Float[Tensor, "b T"]
    valid: Bool[Tensor, "B T"] | None


def gated_chunks(
    u: Float[Tensor, "B T F"],
    p: Float[Tensor, "B T F"],
    z: Float[Tensor, "B T K"],
    gamma: Float[Tensor, "4 K"],
    beta: Float[Tensor, "4 K"],
    b: Float[Tensor, "t t"] | None,
    rule: Rule,
) -> Float[Tensor, "B T F"]:
    """g. b: for the tokens of one tile; it depends on j - i alone, so that all tiles have the same."""
    dtype = autocast_dtype(u) or u.dtype
    u, p, z = (x.to(dtype).contiguous() for x in (u, p, z))
    plain = partial(_by_autograd, rule)
    if not (rule.how.tiled and u.numel()):
        return plain(u, p, z, gamma, beta, b)
    return twice_differentiable(
        lambda *given: _GatedChunks.apply(*given, rule), plain, u, p, z, gamma, beta, b
    )


def _by_autograd(
    rule: Rule,
    u: Float[Tensor, "B T F"],
    p: Float[Tensor, "B T F"],
    z: Float[Tensor, "B T K"],
    gamma: Float[Tensor, "4 K"],
    beta: Float[Tensor, "4 K"],
    b: Float[Tensor, "t t"] | None,
) -> Float[Tensor, "B T F"]:
    """All chunks at once, in operations that autograd differentiates."""
    B, T, K = z.shape
    C, wide = min(rule.chunk_size, T), wide_type(z)
    cos, sin = cos_sin(T, K, z.device, wide)
    flat = F.silu(z.to(wide)) * gamma.to(wide)[:, None, None] + beta.to(wide)[:, None, None]
    left, right = flat.chunk(2, dim=-1)
    views = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(z.dtype)
    v = F.silu(p) if rule.valid is None else F.silu(p) * rule.valid[..., None]
    c, a = (x.to(z.dtype).expand(B, T)[..., None] for x in (rule.c, rule.a))
    q, k, far_q, far_k, v, c, a = (
        F.pad(x, (0, 0, 0, -T % C)).unflatten(1, (-1, C)) for x in (*views, v, c, a)
    )
    scores = rule.scale * q @ k.mT
    scores = scores if b is None else scores + b[:C, :C].to(z.dtype)
    weights = scores.relu().square() * c
    M = far_k.mT @ v
    if rule.causal:
        weights = weights.tril()
        M = F.pad(M[:, :-1].cumsum(1, dtype=wide).to(v.dtype), (0, 0, 0, 0, 1, 0))
    else:
        M = M.sum(1, keepdim=True)
    y = weights @ v + (a * far_q) @ M
    return F.silu(u) * y.flatten(1, 2)[:, :T]


def tile_length(chunk_size: int, T: int, how: Cut) -> int:
    """Tokens of a tile: whole chunks, at least one."""
    return min(T, chunk_size * max(1, how.tile // chunk_size))


class _GatedChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, p, z, gamma, beta, b, rule):
        steps = _Steps(p, z, gamma, beta, b, rule)
        cut, keep = steps.cut, any(ctx.needs_input_grad)
        g, y, sums = torch.empty_like(u), torch.empty_like(u) if keep else None, []
        ahead = not rule.causal and not steps.alone  # M comes first, while g holds v
        for row in steps.order:
            M = steps.no_sum()
            for place in row if ahead else ():
                values = _joined(steps.values(place, cut(g, place)))
                add_product(M, _joined(steps.far_keys(place)).mT, values)
            for place in row:
                step = steps.at(place, cut(g, place) if ahead else steps.values(place))
                y_t = torch.bmm(step.weights, step.v, out=None if y is None else cut(y, place))
                if not steps.alone:
                    y_t.baddbmm_(step.far_q, _each(M, y_t))
                    sums += [M if ahead else M.clone()] if keep else []
                if rule.causal and place != row[-1]:
                    add_product(M, step.far_k.mT, step.v)
                torch.mul(F.silu(cut(u, place)), y_t, out=cut(g, place))
        if keep:
            ctx.rule = rule
            ctx.save_for_backward(u, p, z, gamma, beta, b, y, *sums)
        return g

    @staticmethod
    @once_differentiable
    def backward(ctx, dg):
        u, p, z, gamma, beta, b, y, *sums = ctx.saved_tensors
        causal, steps = ctx.rule.causal, _Steps(p, z, gamma, beta, b, ctx.rule)
        cut, dg = steps.cut, dg.contiguous()
        du, dp, dz = torch.empty_like(u), torch.empty_like(p), torch.empty_like(z)
        ahead = not causal and not steps.alone
        for row in reversed(steps.order):
            dM = steps.no_sum()
            for place in row if ahead else ():
                dy = torch.mul(F.silu(cut(u, place)), cut(dg, place), out=cut(dp, place))
                add_product(dM, _joined(steps.far_queries(place)).mT, _joined(dy))
            for place in reversed(row):
                step = steps.at(place, steps.values(place))
                u_t, dg_t = cut(u, place), cut(dg, place)
                dy = cut(dp, place) if ahead else F.silu(u_t).mul_(dg_t)
                silu_backward.grad_input(dg_t * cut(y, place), u_t, grad_input=cut(du, place))
                steps.backward(place, step, dy, None if steps.alone else sums.pop(), dM, dp, dz)
                if causal and place != row[0]:
                    add_product(dM, step.far_q.mT, dy)
        return du, dp, dz, *steps.gradients(gamma, beta, b), None


def _each(M: Float[Tensor, "1 K F"], like: Float[Tensor, "e t F"]) -> Float[Tensor, "e K F"]:
    """M for every tile of a step."""
    return M.to(like.dtype).expand(len(like), -1, -1)


def _joined(x: Float[Tensor, "e t K"]) -> Float[Tensor, "1 n K"]:
    """Tokens of all tiles of a step on one axis."""
    return x.view(1, -1, x.shape[2])


class _Step(NamedTuple):
    q: Float[Tensor, "e t K"]
    k: Float[Tensor, "e t K"]
    far_q: Float[Tensor, "e t K"]  # a q'
    far_k: Float[Tensor, "e t K"]
    v: Float[Tensor, "e t F"]
    slope: Float[Tensor, "e t t"]  # half of that of the near weights over their scores
    weights: Float[Tensor, "e t t"]


class _Steps:
    """Bounds of the steps, what each computes from the inputs, and the gradients of shared parameters."""

    def __init__(self, p: Tensor, z: Tensor, gamma: Tensor, beta: Tensor, b, rule: Rule):
        B, T, K = z.shape
        C, n, device = rule.chunk_size, tile_length(rule.chunk_size, T, rule.how), z.device
        self.p, self.z, self.rule, self.tile = p, z, rule, n
        self.alone = n == T  # one tile holds all pairs, and M is not used
        e = max(1, 2 * rule.how.tile // T) if self.alone else 1
        whole, together = T // n * n, 1 if rule.causal else rule.how.threads
        ends = [*range(0, whole, n * together), whole, T]  # a short tile is last
        tokens = [slice(t, end) for t, end in pairwise(ends) if t < end]
        self.order = [[(slice(i, i + e), some) for some in tokens] for i in range(0, B, e)]
        self.wide = wide_type(z)
        self.cos, self.sin = (x[None] for x in cos_sin(T, K, device, self.wide))
        self.gamma, self.beta = (x.to(self.wide)[:, None, None] for x in (gamma, beta))
        self.b = z.new_zeros(1, 1) if b is None else b.to(z.dtype)
        self.c, self.a = (x.to(z.dtype).expand(B, T)[..., None] for x in (rule.c, rule.a))
        self.valid = None if rule.valid is None else rule.valid[..., None]
        chunk = torch.arange(n, device=device) // C
        same, earlier = chunk[:, None] == chunk, chunk[:, None] > chunk
        self.near = self.far = None  # pairs of a step; without a tensor: near all, far none
        if rule.causal or n > C:
            self.near = (same.tril() if rule.causal else same).to(z.dtype)
        if rule.causal and n > C:
            self.far = earlier.to(z.dtype)
        elif not rule.causal and self.alone:
            self.far = z.new_ones(n, n)
        self.d_gamma, self.d_beta = torch.zeros_like(self.gamma), torch.zeros_like(self.beta)
        self.d_b = self.b.new_zeros(n, n, dtype=self.wide)

    def no_sum(self) -> Float[Tensor, "1 K F"]:
        return self.p.new_zeros(1, self.z.shape[2], self.p.shape[2], dtype=self.wide)

    def cut(self, x: Shaped[Tensor, "B T K"], place: Place) -> Shaped[Tensor, "e t K"]:
        """The tiles of a step; a view where x is contiguous."""
        some = x[place]
        return some.reshape(-1, min(self.tile, some.shape[1]), x.shape[2])

    def at(self, place: Place, v: Float[Tensor, "e t F"]) -> _Step:
        q, k, far_q, far_k = self._views(place, slice(0, 4))
        far_q = far_q * self.cut(self.a, place)
        t = q.shape[1]
        scores = torch.baddbmm(self.b[:t, :t], q, k.mT, alpha=self.rule.scale)
        positive = scores.relu_()
        slope = positive * self.cut(self.c, place)
        if self.near is not None:
            slope *= self.near[:t, :t]
        weights = positive.mul_(slope)
        if self.far is not None:
            weights.addcmul_(far_q @ far_k.mT, self.far[:t, :t])
        return _Step(q, k, far_q, far_k, v, slope, weights)

    def values(self, place: Place, out: Tensor | None = None) -> Float[Tensor, "e t F"]:
        p = self.cut(self.p, place)
        v = F.silu(p) if out is None else torch.ops.aten.silu.out(p, out=out)
        return v if self.valid is None else v.mul_(self.cut(self.valid, place))

    def far_queries(self, place: Place) -> Float[Tensor, "e t K"]:
        return self._views(place, slice(2, 3))[0] * self.cut(self.a, place)

    def far_keys(self, place: Place) -> Float[Tensor, "e t K"]:
        return self._views(place, slice(3, 4))[0]

    def _views(self, place: Place, which: slice) -> Float[Tensor, "n e t K"]:
        z = F.silu(self.cut(self.z, place).to(self.wide))
        flat = torch.addcmul(self.beta[which], z, self.gamma[which])
        return turned(flat, *self._angles(place)).to(self.z.dtype)

    def _angles(self, place: Place) -> tuple[Float[Tensor, "e t k"], Float[Tensor, "e t k"]]:
        here = slice(None), place[1]
        return self.cut(self.cos, here), self.cut(self.sin, here)

    def backward(self, place: Place, step: _Step, dy, M, dM, dp, dz):
        """Gradients of p and z of this step, from those of its y and of the sum M that later steps use."""
        q, k, far_q, far_k, v, slope, weights = step
        t = q.shape[1]
        d_weights = dy @ v.mT
        d_scores = slope.mul_(d_weights).mul_(2)
        dv = weights.mT @ dy
        d_views = torch.empty(4, *q.shape, dtype=q.dtype, device=q.device)
        d_far_q, d_far_k = d_views[2], d_views[3]
        torch.bmm(d_scores, k, out=d_views[0])
        torch.bmm(d_scores.mT, q, out=d_views[1])
        d_views[:2] *= self.rule.scale
        if self.alone:
            d_views[2:] = 0
        else:
            M, dM = _each(M, dy), _each(dM, dy)
            torch.bmm(dy, M.mT, out=d_far_q)
            torch.bmm(v, dM.mT, out=d_far_k)
            dv.baddbmm_(far_k, dM)
        if self.far is not None:
            d_far = d_weights.mul_(self.far[:t, :t])
            d_far_q.baddbmm_(d_far, far_k)
            d_far_k.baddbmm_(d_far.mT, far_q)
        d_far_q *= self.cut(self.a, place)
        if self.valid is not None:
            dv.mul_(self.cut(self.valid, place))
        silu_backward.grad_input(dv, self.cut(self.p, place), grad_input=self.cut(dp, place))
        self.d_b[:t, :t] += d_scores.sum(0)
        self._views_backward(place, d_views.to(self.wide), dz)

    def _views_backward(self, place: Place, d_views: Float[Tensor, "4 e t K"], dz: Tensor):
        cos, sin = self._angles(place)
        flat = turned(d_views, cos, -sin)  # turned back
        z = self.cut(self.z, place).to(self.wide)
        self.d_gamma += (flat * F.silu(z)).sum((1, 2), keepdim=True)
        self.d_beta += flat.sum((1, 2), keepdim=True)
        self.cut(dz, place).copy_(silu_backward((flat * self.gamma).sum(0), z))

    def gradients(self, gamma: Tensor, beta: Tensor, b: Tensor | None):
        d_b = None if b is None else self.d_b.to(b.dtype)
        return self.d_gamma[:, 0, 0].to(gamma.dtype), self.d_beta[:, 0, 0].to(beta.dtype), d_b
