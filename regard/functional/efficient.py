"""Efficient attention: one softmax over the features of a query, one over the positions of a key channel.

    y = softmax_features(Q) softmax_positions(K)^T V                              (Shen et al. 2018, arXiv 1812.01243)

In causal order the second softmax runs over the positions so far, which gives each channel c a denominator of its own:

    y_i = sum_c rho_ic / z_ic sum_(j <= i) exp(k_jc - m_ic) v_j,   z_ic = sum_(j <= i) exp(k_jc - m_ic),   m_ic = max_(j <= i) k_jc

In chunks of C tokens, which are an axis: exponents inside are taken pair by pair, and S_c = sum_j exp(k_jc - m_c) v_j, z and m carry the
chunks before, so that no exponent is above zero: exact for keys of any size. m takes no gradient: it cancels.
Time grows as T K (V + C), memory as T K (C + V / C). A stream is the same function from the state (S, z, m).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core import OPEN, Keys, Marks, Mask, Mixed, OwnKeys, OwnValues, Queries, Values
from regard.functional.cache import is_ours
from regard.functional.features import lowest
from regard.functional.linear import accumulated
from regard.functional.rows import (
    Impl,
    choose,
    cleared,
    exp,
    fitted,
    in_chunks,
    in_time,
    pick,
    upto,
    widened,
    with_ones,
)

CHUNK = 16
"""Tokens of a chunk, C: pairs cost C K for each token, states K V / C."""

LEAST = 0.5
"""Below the z of any key, since the largest counts 1: what z is divided as, where there is no key."""

Sums = Float[Tensor, "B H K V"]  # of exponentials times values
Channels = Float[Tensor, "B H K"]
State = tuple[Sums, Channels, Channels]


def efficient_attention(
    q: Queries, k: Keys, v: Values, *, mask: Mask = OPEN, impl: Impl = "auto"
) -> Mixed:
    """Rows of the weights sum to one. It is not an approximation of softmax(q k). impl: see `functional.rows`."""
    return choose("efficient", attend, impl, chunk=CHUNK)(q, k, v, mask=mask)


def attend(q, k, v, *, mask: Mask, chunk: int = CHUNK) -> Tensor:
    rho = q.softmax(-1)
    T = q.shape[2]
    S = k.shape[2]
    if not mask.causal:
        return rho @ summed(k, v, mask.valid)
    k = present_keys(k, mask.valid)
    state = no_keys(v, k.shape[3])
    if T != S or mask.shift is not None:
        # b T: the last key that each query sees; below 0: none
        last = mask.last_key(T, S, k.device)
        before = present_keys(k, upto(S, k) < last[:, :1])
        m = before.detach().amax(2).clamp_min(lowest(k.dtype) / 2)
        e = exp(before - m[:, :, None])
        state = e.mT @ v, e.sum(2), m
        k, v = (pick(z, last.clamp_min(0)) for z in (k, v))
        k = present_keys(k, last >= 0)
    return causal_means(rho, k, v, *state, chunk=chunk)[0]


def present_keys(k: Keys, valid: Bool[Tensor, "#B S"] | None) -> Keys:
    """Keys whose exponentials are zero where there is no token; half of them is above, and the m of no tokens."""
    return k if valid is None else k.masked_fill(~valid[:, None, :, None], lowest(k.dtype))


def summed(k: Keys, v: Values, valid: Marks | None) -> Sums:
    """Softmax over valid positions, channel by channel, times the values; zero if there are none."""
    return cleared(present_keys(k, valid).softmax(2), valid).mT @ v


def no_keys(like: Float[Tensor, "B H _ V"], channels: int) -> State:
    """The state before the first key."""
    S = like.new_zeros(*like.shape[:2], channels, like.shape[-1])
    return S, S[..., 0].clone(), torch.full_like(S[..., 0], lowest(like.dtype) / 2)


def causal_means(
    rho: Queries,
    k: OwnKeys,
    v: OwnValues,
    S: Sums,
    z: Channels,
    m: Channels,
    *,
    chunk: int = CHUNK,
    donate: bool = False,
) -> tuple[Mixed, Tensor, Tensor, Tensor]:
    """y, and the state after it, from that before. donate: the state after one token may be where the state before it was."""
    dtype, T = v.dtype, k.shape[2]
    rho, k, v, S, z, m = widened(rho, k, v, S, z, m)
    if T == 1:
        step = _one(rho, k[:, :, 0], v, S, z, m, is_ours(donate, S, k, v))
        y, S, z, m = (x.to(dtype) for x in step)
        return y, S, z, m
    C = fitted(chunk, T)
    rho, v = in_chunks(rho, C), with_ones(in_chunks(v, C))
    k = in_chunks(k, C, lowest(dtype))
    m_i = torch.cat([m[:, :, None], k.detach().flatten(2, 3)], 2).cummax(2).values
    m, m_i = m_i[:, :, ::C], m_i[:, :, 1:].unflatten(2, k.shape[2:4])  # of N + 1 borders; of tokens
    before, after = m[:, :, :-1], m[:, :, 1:]
    gain = exp(k - after[:, :, :, None]).mT @ v
    states, last = accumulated(torch.cat([S, z[..., None]], -1), gain, before - after)

    later = k.new_ones(C, C, dtype=torch.bool).triu(1)[..., None]
    pairs = exp((k[:, :, :, None] - m_i[:, :, :, :, None]).masked_fill(later, -torch.inf))  # i j c
    carried = exp(before[:, :, :, None] - m_i)
    z_i = pairs.sum(-2) + carried * states[..., None, :, -1]
    a = rho / z_i.clamp_min(LEAST)
    y = (pairs @ a[..., None])[..., 0] @ v[..., :-1] + (a * carried) @ states[..., :-1]
    S = last[..., :-1].to(dtype)
    z = last[..., -1].to(dtype)
    return in_time(y, T).to(dtype), S, z, m[:, :, -1].to(dtype)


def _one(rho, k, v, S, z, m, ours: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A decoding step: few operations, since each costs more than its numbers."""
    top = torch.maximum(m, k).detach()
    e = (k - top).exp_()
    shrink = (m - top).exp_()[..., None]
    z = torch.addcmul(e, z, shrink[..., 0])
    S = S.mul_(shrink) if ours else S * shrink
    S = S.addcmul_(e[..., None], v)
    return (rho / z.clamp_min(LEAST)[:, :, None]) @ S, S, z, top
