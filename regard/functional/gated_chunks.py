"""Mixed chunk attention behind a gate (FLASH, Hua et al. 2022, arXiv 2202.10447), a step of some chunks at a time.

    q, k, q', k' = rope(silu(z) gamma_n + beta_n),  n = 0 .. 3,        v = silu(p)
    y_i = sum_j c_i relu(s q_i k_j + b_ij)^2 v_j  +  a_i q'_i M,        g_i = silu(u_i) y_i

The sum runs over the keys that i sees in its chunk; M = sum_j k'_j v_j^T over all tokens, or, where causal, over the
chunks before. Views, weights and silus of a step live in cache and are made again in the backward, which keeps y and M.
Chunks that share a step meet one another pair by pair, q'_i k'_j, and not through M.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.functional.mixed_chunk import add_product
from regard.functional.rotary import cos_sin, turned

STEP = 256  # tokens whose pairs are held at once
LONGEST_CHUNK = 512  # the pairs of longer ones leave the cache

Place = tuple[slice, slice]  # examples, tokens
silu_backward = torch.ops.aten.silu_backward


class Rule(NamedTuple):
    """What is not learned."""

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
    """g. b: of the first `step_length` tokens; later ones have the same, since it depends on j - i alone."""
    kind = u.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        u, p, z = (x.to(torch.get_autocast_dtype(kind)) for x in (u, p, z))
    return _GatedChunks.apply(u, p, z, gamma, beta, b, rule)


def step_length(chunk_size: int, T: int) -> int:
    return min(T, chunk_size * max(1, STEP // chunk_size))


class _GatedChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, p, z, gamma, beta, b, rule):
        steps = _Steps(p, z, gamma, beta, b, rule)
        keep = any(ctx.needs_input_grad)
        g, y, sums = torch.empty_like(u), torch.empty_like(u) if keep else None, []
        ahead = not rule.causal and not steps.alone  # M comes first, while g holds v
        for row in steps.walk:
            M = steps.no_sum()
            for place in row if ahead else ():
                add_product(M, steps.far_keys(place), steps.values(place, out=g[place]))
            for place in row:
                step = steps.at(place, g[place] if ahead else steps.values(place))
                y_t = torch.bmm(step.weights, step.v, out=None if y is None else y[place])
                if not steps.alone:
                    y_t.baddbmm_(step.far_q, M.to(y_t.dtype))
                    sums += [M if ahead else M.clone()] if keep else []
                if rule.causal and place != row[-1]:
                    add_product(M, step.far_k, step.v)
                torch.mul(F.silu(u[place]), y_t, out=g[place])
        if keep:
            ctx.rule = rule
            ctx.save_for_backward(u, p, z, gamma, beta, b, y, *sums)
        return g

    @staticmethod
    @once_differentiable
    def backward(ctx, dg):
        u, p, z, gamma, beta, b, y, *sums = ctx.saved_tensors
        causal, steps = ctx.rule.causal, _Steps(p, z, gamma, beta, b, ctx.rule)
        du, dp, dz = torch.empty_like(u), torch.empty_like(p), torch.empty_like(z)
        ahead = not causal and not steps.alone
        for row in reversed(steps.walk):
            dM = steps.no_sum()
            for place in row if ahead else ():
                dy = torch.mul(F.silu(u[place]), dg[place], out=dp[place])  # until dp's turn
                add_product(dM, steps.far_queries(place), dy)
            for place in reversed(row):
                step = steps.at(place, steps.values(place))
                dy = dp[place] if ahead else F.silu(u[place]).mul_(dg[place])
                silu_backward.grad_input(dg[place] * y[place], u[place], grad_input=du[place])
                steps.backward(place, step, dy, None if steps.alone else sums.pop(), dM, dp, dz)
                if causal and place != row[0]:
                    add_product(dM, step.far_q, dy)
        return du, dp, dz, *steps.gradients(gamma, beta, b), None


class _Step(NamedTuple):
    q: Float[Tensor, "e t K"]
    k: Float[Tensor, "e t K"]
    far_q: Float[Tensor, "e t K"]  # a q'
    far_k: Float[Tensor, "e t K"]
    v: Float[Tensor, "e t F"]
    slope: Float[Tensor, "e t t"]  # half of that of the near weights over their scores
    weights: Float[Tensor, "e t t"]


class _Steps:
    """Where the steps lie, what they make of the inputs, and the gradients of what they share."""

    def __init__(self, p: Tensor, z: Tensor, gamma: Tensor, beta: Tensor, b, rule: Rule):
        B, T, K = z.shape
        C, n, device = rule.chunk_size, step_length(rule.chunk_size, T), z.device
        self.p, self.z, self.rule = p, z, rule
        self.alone = n == T  # all pairs are those of one step, and nothing goes through M
        e = max(1, 2 * STEP // T) if self.alone else 1
        self.walk = [
            [(slice(i, i + e), slice(t, min(t + n, T))) for t in range(0, T, n)]
            for i in range(0, B, e)
        ]
        self.wide = torch.promote_types(z.dtype, torch.float32)
        self.cos, self.sin = cos_sin(T, K, device, self.wide)
        self.gamma, self.beta = (x.to(self.wide)[:, None, None] for x in (gamma, beta))
        self.b = z.new_zeros(1, 1) if b is None else b.to(z.dtype)
        self.c, self.a = (x.to(z.dtype).expand(B, T)[..., None] for x in (rule.c, rule.a))
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

    def at(self, place: Place, v: Float[Tensor, "e t F"]) -> _Step:
        q, k, far_q, far_k = self._views(place, slice(0, 4))
        far_q = far_q * self.a[place]
        t = q.shape[1]
        scores = torch.baddbmm(self.b[:t, :t], q, k.mT, alpha=self.rule.scale)
        positive = scores.relu_()
        slope = positive * self.c[place]
        if self.near is not None:
            slope *= self.near[:t, :t]
        weights = positive.mul_(slope)
        if self.far is not None:
            weights.addcmul_(far_q @ far_k.mT, self.far[:t, :t])
        return _Step(q, k, far_q, far_k, v, slope, weights)

    def values(self, place: Place, out: Tensor | None = None) -> Float[Tensor, "e t F"]:
        p = self.p[place]
        v = F.silu(p) if out is None else torch.ops.aten.silu.out(p, out=out)
        return v if self.rule.valid is None else v.mul_(self.rule.valid[place][..., None])

    def far_queries(self, place: Place) -> Float[Tensor, "e t K"]:
        return self._views(place, slice(2, 3))[0] * self.a[place]

    def far_keys(self, place: Place) -> Float[Tensor, "e t K"]:
        return self._views(place, slice(3, 4))[0]

    def _views(self, place: Place, which: slice) -> Float[Tensor, "n e t K"]:
        z = F.silu(self.z[place].to(self.wide))
        flat = torch.addcmul(self.beta[which], z, self.gamma[which])
        return turned(flat, self.cos[place[1]], self.sin[place[1]]).to(self.z.dtype)

    def backward(self, place: Place, step: _Step, dy, M, dM, dp, dz):
        """The gradients of p and z here, from those of y here and of the sum that later steps read."""
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
            torch.bmm(dy, M.to(dy.dtype).mT, out=d_far_q)
            torch.bmm(v, dM.to(v.dtype).mT, out=d_far_k)
            dv.baddbmm_(far_k, dM.to(dv.dtype))
        if self.far is not None:
            d_far = d_weights.mul_(self.far[:t, :t])
            d_far_q.baddbmm_(d_far, far_k)
            d_far_k.baddbmm_(d_far.mT, far_q)
        d_far_q *= self.a[place]
        if self.rule.valid is not None:
            dv.mul_(self.rule.valid[place][..., None])
        silu_backward.grad_input(dv, self.p[place], grad_input=dp[place])
        self.d_b[:t, :t] += d_scores.sum(0)
        self._views_backward(place, d_views.to(self.wide), dz)

    def _views_backward(self, place: Place, d_views: Float[Tensor, "4 e t K"], dz: Tensor):
        flat = turned(d_views, self.cos[place[1]], -self.sin[place[1]])  # turned back
        z = self.z[place].to(self.wide)
        self.d_gamma += (flat * F.silu(z)).sum((1, 2), keepdim=True)
        self.d_beta += flat.sum((1, 2), keepdim=True)
        dz[place] = silu_backward((flat * self.gamma).sum(0), z)

    def gradients(self, gamma: Tensor, beta: Tensor, b: Tensor | None):
        d_b = None if b is None else self.d_b.to(b.dtype)
        return self.d_gamma[:, 0, 0].to(gamma.dtype), self.d_beta[:, 0, 0].to(beta.dtype), d_b
