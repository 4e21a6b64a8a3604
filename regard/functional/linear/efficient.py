"""Efficient attention: one softmax over the features of a query, one over the positions of a key channel.

    y = softmax_features(Q) softmax_positions(K)^T V                              (Shen et al. 2018, arXiv 1812.01243)

In causal order the second softmax runs over the positions so far, which gives one denominator to each channel:

    A_ij = sum_c rho_ic exp(k_jc - L_ic),   L_ic = log sum_{j <= i} exp(k_jc)

Taken apart, exp(k_jc - R_c) exp(R_c - L_ic) has no exponent above zero where R is the L of a position from j to i. So
keys before a border meet queries behind it with the border's R: borders of chunks, whose sums make up the state, then
borders halving each chunk, down to blocks in which the exponents are taken pair by pair. Exact for keys of any size.
R takes no gradient: it cancels.
"""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.functional.linear import chunks
from regard.functional.linear.attention import on_one_timeline
from regard.functional.shared.cache import is_ours
from regard.functional.shared.implementation import Impl, cut
from regard.functional.shared.numerics import exp, exp_
from regard.functional.shared.recompute import twice_differentiable

BLOCK = 4
SCAN = 16


def efficient_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Rows of the weights sum to one. It is not an approximation of softmax(q k). impl: see `implementation`."""
    k, how = present_keys(k, mask), cut("efficient", impl, q, k, v)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H T V"]:
        rho, keys, values, _ = on_one_timeline(
            q.softmax(-1), k, v, None, mask, absent=lowest(k.dtype)
        )
        return causal_means(rho, keys, values, impl=impl)[0][:, :, -q.shape[2] :]

    if not mask.causal:
        return q.softmax(-1) @ (position_softmax(k, mask).transpose(-1, -2) @ v)
    if mask.shift is None and q.shape[2] == k.shape[2] and how.readable and q.numel() and v.numel():
        scan = partial(chunks.run, _CausalMeans, (chunks.needs_backward(q, k, v), how))
        return twice_differentiable(scan, plain, q, k, v)
    return plain(q, k, v)


def lowest(dtype: torch.dtype) -> float:
    """The key of an absent token, and the L of no tokens: finite, so that differences are numbers."""
    return torch.finfo(dtype).min / 4


def present_keys(k: Float[Tensor, "B H S K"], mask: Mask) -> Float[Tensor, "B H S K"]:
    """Keys whose exponentials are zero where the token is absent."""
    return (
        k if mask.valid is None else k.masked_fill(~mask.valid[:, None, :, None], lowest(k.dtype))
    )


def position_softmax(k: Float[Tensor, "B H S K"], mask: Mask) -> Float[Tensor, "B H S K"]:
    """Softmax over valid positions, channel by channel; zero if there are none."""
    weights = k.softmax(2)
    return weights if mask.valid is None else weights * mask.valid[:, None, :, None]


def causal_means(
    rho: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    S: Float[Tensor, "B H K V"] | None = None,
    z: Float[Tensor, "B H K"] | None = None,
    m: Float[Tensor, "B H K"] | None = None,
    *,
    impl: Impl = "auto",
    donate: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y [B H T V], and the state after it: S = sum_j exp(k_j - m) v_j, z = sum_j exp(k_j - m), m close to log sum_j exp(k_j).

    donate: the state after one token may lie where the state before it lay.
    """
    if S is None or z is None or m is None:
        S, z, m = no_keys(v, k.shape[-1])
    dtype, T = v.dtype, k.shape[2]
    wide = torch.promote_types(dtype, torch.float32)
    rho, k, v, S, z, m = (a.to(wide) for a in (rho, k, v, S, z, m))
    if T == 1:  # a decoding step: few operations, since each costs more than its numbers
        k = k[:, :, 0]
        top = torch.maximum(m, k).detach()
        e, shrink = (k - top).exp_(), (m - top).exp_()[..., None]
        z = torch.addcmul(e, z, shrink[..., 0])
        S = S.mul_(shrink) if is_ours(donate, S, k, v) else S * shrink
        S = S.addcmul_(e[..., None], v)
        y = (rho / z[:, :, None]) @ S
        return y.to(dtype), S.to(dtype), z.to(dtype), top.to(dtype)
    how = cut("efficient", impl, v)
    chunk = how.chunk
    C = 1 << min(chunk.bit_length() - 1, (T - 1).bit_length())  # a power of two
    rest = -T % C
    if rest:
        rho, v = F.pad(rho, (0, 0, 0, rest)), F.pad(v, (0, 0, 0, rest))
        k = F.pad(k, (0, 0, 0, rest), value=lowest(dtype))
    log_sums = running_log_sum(k) if how.tiled else k.logcumsumexp(2)
    so_far = _logaddexp((m + z.log())[:, :, None], log_sums)
    rho, k, v, L = (a.unflatten(2, (-1, C)) for a in (rho, k, v, so_far))
    m_after = so_far[:, :, -1].detach().to(dtype)
    z_after = (so_far[:, :, -1] - m_after).exp()
    R = torch.cat([m[:, :, None], L[:, :, :-1, -1].detach(), m_after[:, :, None]], dim=2)
    gain = (k - R[:, :, 1:, None]).exp_().transpose(-1, -2) @ v
    before, S = chunks.decayed(S, gain, R[:, :, :-1] - R[:, :, 1:])
    y = (rho * (R[:, :, :-1, None] - L).exp_()) @ before
    y = (y + _inside(rho, k, v, L)).flatten(2, 3)
    return y[:, :, :T].to(dtype), S.to(dtype), z_after.to(dtype), m_after


def no_keys(like: Float[Tensor, "B H T V"], channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """The state before the first key: S [B H K V], z and m [B H K]."""
    S = like.new_zeros(*like.shape[:2], channels, like.shape[-1])
    z = like.new_ones(*like.shape[:2], channels)
    return S, z, torch.full_like(z, lowest(like.dtype))


class _CausalMeans(torch.autograd.Function):
    """In groups of chunks: y = sum_c a_ic e_jc v_j with a = rho / z, e = exp(k - R), R the largest key up to the end of the group."""

    @staticmethod
    def forward(ctx, how, q, k, v):
        keep, ctx.cut = how
        y, ctx.steps, states = torch.empty_like(v), [], []
        for group in chunks.examples(q, q.shape[-1], ctx.cut):
            S, z, m = (x.flatten(0, 1) for x in no_keys(_wide(v[group, :, :0]), k.shape[-1]))
            z, m = torch.zeros_like(z), m / 2  # above an absent key, whose exponential is then zero
            groups = chunks.ChunkGroups(q.shape[2], chunks.token_bytes(z), ctx.cut)
            for rows in groups:
                q_p, k_p, v_p = (_wide(chunks.cut(x, group, rows)) for x in (q, k, v))
                R = torch.maximum(m, k_p.amax(1))
                if chunks.moves_far(R - torch.maximum(m, k_p[:, 0])):
                    groups.halve(rows)
                    continue
                if keep:
                    ctx.steps.append((group, rows))
                    states += [S, z, m, R]
                piece = _Piece.of(q_p, k_p, z, m, R)
                y_p, S = chunks.sums(
                    piece.a, piece.e, v_p, S * piece.shrink[..., None], ctx.cut.chunk
                )
                chunks.put(y, group, rows, y_p)
                z, m = piece.z[:, -1], R
        ctx.save_for_backward(q, k, v, *states)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        with torch.autocast("cpu", enabled=False):
            return _CausalMeans._gradients(ctx, dy)

    @staticmethod
    def _gradients(ctx, dy):
        q, k, v, *states = ctx.saved_tensors
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        for group, rows in reversed(ctx.steps):
            *states, S, z, m, R = states
            if rows.stop == q.shape[2]:
                dS, dz = torch.zeros_like(S), torch.zeros_like(z)
            q_p, k_p, v_p, dy_p = (_wide(chunks.cut(x, group, rows)) for x in (q, k, v, dy))
            piece = _Piece.of(q_p, k_p, z, m, R)
            before = S * piece.shrink[..., None]
            found = chunks.sums_backward(piece.a, piece.e, v_p, before, dy_p, dS, ctx.cut.chunk)
            drho, de, dS = found.a.div_(piece.z), found.e, found.S
            dz_p = piece.a.mul_(drho).neg_()
            de += _summed(dz_p, backwards=True) + dz[:, None]
            dS, dz = dS * piece.shrink[..., None], (dz + dz_p.sum(1)) * piece.shrink
            drho -= (drho * piece.rho).sum(-1, keepdim=True)
            chunks.put(dq, group, rows, drho.mul_(piece.rho))
            chunks.put(dk, group, rows, de.mul_(piece.e))
            chunks.put(dv, group, rows, found.v)
        return None, dq, dk, dv


class _Piece(NamedTuple):
    rho: Float[Tensor, "b t K"]
    e: Float[Tensor, "b t K"]
    z: Float[Tensor, "b t K"]
    a: Float[Tensor, "b t K"]
    shrink: Float[Tensor, "b K"]  # what sums under the last piece's reference are multiplied by

    @classmethod
    def of(cls, q: Tensor, k: Tensor, z: Tensor, m: Tensor, R: Tensor) -> "_Piece":
        rho, e, shrink = q.softmax(-1), exp_(k - R[:, None]), exp(m - R)
        z = _summed(e).add_((z * shrink)[:, None]).clamp_min_(torch.finfo(z.dtype).tiny)
        return cls(rho, e, z, rho / z, shrink)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _summed(x: Float[Tensor, "b t K"], *, backwards: bool = False) -> Float[Tensor, "b t K"]:
    """Running sums along t in small blocks, as matrix products: torch.cumsum goes one number at a time."""
    b, t, K = x.shape
    C = SCAN if t % SCAN == 0 else t
    ones = x.new_ones(C, C)
    ones = (ones.triu_() if backwards else ones.tril_()).expand(b * t // C, C, C)
    inside = torch.bmm(ones, x.reshape(-1, C, K)).view(b, -1, C, K)
    if backwards:
        inside[:, :-1] += inside[:, 1:, :1].flip(1).cumsum(1).flip(1)
    else:
        inside[:, 1:] += inside[:, :-1, -1:].cumsum(1)
    return inside.view(b, t, K)


def _inside(
    rho: Float[Tensor, "*b C K"],
    k: Float[Tensor, "*b C K"],
    v: Float[Tensor, "*b C V"],
    L: Float[Tensor, "*b C K"],
) -> Float[Tensor, "*b C V"]:
    """The part of the keys of a query's own chunk; C is a power of two."""
    C = k.shape[-2]
    if C <= BLOCK:
        later = torch.ones(C, C, dtype=torch.bool, device=k.device).triu(1)[..., None]
        apart = (k[..., None, :, :] - L[..., :, None, :]).masked_fill_(later, -torch.inf)
        return (apart.exp_() @ rho[..., None])[..., 0] @ v
    rho, k, v, L = (a.unflatten(-2, (2, C // 2)) for a in (rho, k, v, L))
    R = L[..., 0, -1:, :].detach()
    weights = (rho[..., 1, :, :] * (R - L[..., 1, :, :]).exp_()) @ (
        (k[..., 0, :, :] - R).exp_().transpose(-1, -2)
    )
    across = weights @ v[..., 0, :, :]
    within = _inside(rho, k, v, L)
    return torch.cat([within[..., 0, :, :], within[..., 1, :, :] + across], dim=-2)


def running_log_sum(k: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
    """log sum_{j <= i} exp(k_j), in blocks side by side (on a CPU torch.logcumsumexp goes one number at a time)."""
    T = k.shape[2]
    if T == 1:
        return k
    C = min(SCAN, T)
    blocks = F.pad(k, (0, 0, 0, -T % C), value=lowest(k.dtype)).unflatten(2, (-1, C))
    rows = list(blocks.unbind(3))
    for i in range(1, C):
        rows[i] = _logaddexp(rows[i - 1], rows[i])
    inside = torch.stack(rows, dim=3)
    if inside.shape[2] > 1:
        before = running_log_sum(rows[-1])[:, :, :-1]
        before = F.pad(before, (0, 0, 1, 0), value=lowest(k.dtype))
        inside = _logaddexp(before[:, :, :, None], inside)
    return inside.flatten(2, 3)[:, :, :T]


def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b); the second derivative of torch's own is not a number where a and b are far apart."""
    top = torch.maximum(a, b).detach()
    return top + (exp(a - top) + exp(b - top)).log()


def efficient_weights(
    q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H S K"], *, mask: Mask = OPEN
) -> Float[Tensor, "B H T S"]:
    """The weights that the forms above amount to, one channel at a time."""
    rho, T, S = q.softmax(-1), q.shape[2], k.shape[2]
    k = present_keys(k, mask)
    allowed = mask.dense(T, S, device=q.device)
    if not mask.causal:
        return rho @ position_softmax(k, mask).transpose(-1, -2) * allowed
    weights = q.new_zeros(())
    for c in range(k.shape[-1]):
        keys = k[..., None, :, c].expand(*k.shape[:2], T, S)
        keys = keys.masked_fill(~allowed, lowest(k.dtype))
        weights = weights + rho[..., c, None] * keys.softmax(-1)
    return weights * allowed
