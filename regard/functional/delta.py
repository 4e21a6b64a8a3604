"""Sums that decay, and the delta rule: each token erases what the state holds under its key, and writes its value there.

    decayed   S_t = diag(a_t) S_(t-1) + k_t v_t^T,                                                       y_t = S_t^T q_t,   log a_t = g_t <= 0
    delta     S_t = diag(a_t) S_(t-1) + k_t u_t^T,   u_t = b_t (v_t - (diag(a_t) S_(t-1))^T k_t),        y_t = S_t^T q_t

Delta without decay: Schlag et al. 2021, arXiv 2102.11174; in chunks: Yang et al. 2024, arXiv 2406.06484; one decay a head: arXiv 2412.06464; one a
channel of keys: arXiv 2510.26692, and without erasing arXiv 2312.06635. In a chunk of C tokens with G the running sum of g and D_ij =
e^(G_i - G_j), one triangular system gives what all its tokens write:

    (I + tril(b k D k^T, -1)) [U W] = b [v, k e^G],   u = U - W S,   y = (q e^G) S + tril(q D k^T) u,   S' = e^(G_C) S + (k e^(G_C - G))^T u

Without erasing u = v, and all chunks are computed at once. Where tokens erase, chunks follow each other, since the state passes through a
product of matrices; an exported program then has one chunk, of all tokens, whose time and memory grow as T^2. Time grows as T (K V + C (K + V)),
memory as T (K + V + K V / C), and with a decay for each channel as T C K.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Mixed, OwnKeys, OwnValues, Queries
from regard.functional.linear import accumulated, chosen_sums, weighted_sums
from regard.functional.rows import (
    Impl,
    choose,
    exp,
    fitted,
    in_chunks,
    in_time,
    recomputed,
    unrounded,
    wide_type,
)

Sums = Float[Tensor, "B H K V"]  # of keys times values, decayed
CHUNK = 64
"""Tokens of a chunk, C; with a decay for each channel a quarter, since D is then [C C K]."""


class Chunks(NamedTuple):
    """Terms of the tokens of all chunks [B H N C _]."""

    read: Tensor  # q e^G
    pairs: tuple[Tensor, ...]  # tril(q D k^T), and tril(k D k^T) where tokens erase
    k: Tensor
    gain: Tensor  # (k e^(G_C - G))^T
    G: Tensor
    up: Tensor  # e^G


def _chunks(q: Tensor, k: Tensor, g: Tensor, C: int, *, whole: bool, erased: bool) -> Chunks:
    q, k, g = (z[:, :, None] if whole else in_chunks(z, C) for z in (q, k, g))
    G = g.cumsum(3)
    pairs = recomputed(_pairs, k, G, q, *[k] * erased)
    up = exp(G)
    return Chunks(q * up, pairs, k, (k * exp(G[:, :, :, -1:] - G)).mT, G, up)


def _pairs(k: Tensor, G: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
    """tril(z D k^T) of each z in `rows`; in the backward D is computed again."""
    earlier = G.new_ones(G.shape[3], G.shape[3], dtype=torch.bool).tril()
    if G.shape[4] == 1:
        D = exp((G - G.mT).masked_fill(~earlier, 0)) * earlier
        return tuple(z @ k.mT * D for z in rows)
    apart = (G[..., :, None, :] - G[..., None, :, :]).masked_fill(~earlier[..., None], 0)
    kept = exp(apart) * earlier[..., None] * k[..., None, :, :]  # [B H N C C K]
    return tuple((kept @ z[..., None])[..., 0] for z in rows)


def _ranged(log_decay: Tensor, dtype: torch.dtype) -> Tensor:
    """No less than what leaves nothing, so that sums of a few have no rounding of a large number, or of infinity."""
    least = math.log(torch.finfo(dtype).tiny) - 40
    return log_decay.masked_fill(
        log_decay < least, least
    )  # a clamp would keep the numbers for its backward


def _begun(at: Chunks, v: Tensor, state: Tensor | None) -> Sums:
    """The state before the first token."""
    if state is not None:
        return state.type_as(at.k)
    return at.k.new_zeros(*v.shape[:2], at.k.shape[-1], v.shape[3])


def _carried(S: Tensor, read: Tensor, gain: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """What queries read of the chunks before their own, and the state after the last; in the backward all states are computed again."""
    before, S = accumulated(S, gain @ v, g)
    return read @ before, S


def decayed_attention(
    q: Queries,
    k: OwnKeys,
    v: OwnValues,
    log_decay: Float[Tensor, "B H T *K"],
    *,
    state: Sums | None = None,
    impl: Impl = "auto",
) -> tuple[Mixed, Sums]:
    """What queries read of decayed sums in causal order, and the state after the last token, from that before the first (None: zero).

    log_decay (<= 0): one number a token, or one a channel of keys. impl: see `functional.rows`; it is for one number a token.
    """
    T, dtype = q.shape[2], wide_type(q)
    log_decay = _ranged(log_decay, dtype)
    if log_decay.ndim == 3:
        total = None if state is None else state[..., 0]
        if T == 1:
            y, _, S, _ = chosen_sums(q, k, v, log_decay, state, total, impl=impl)
        else:
            sums = choose("causal sums", weighted_sums, impl, chunk=CHUNK)
            y, _, S, _ = sums(q, k, v, log_decay, state, total)
        return y, S
    C = fitted(CHUNK // 4, T)
    with unrounded(q):
        at = _chunks(q.to(dtype), k.to(dtype), log_decay.to(dtype), C, whole=False, erased=False)
        wide = in_chunks(v.to(dtype), C)
        terms = at.read, at.gain, wide, at.G[:, :, :, -1]
        carried, S = recomputed(_carried, _begun(at, v, state), *terms)
        y = at.pairs[0] @ wide + carried
    return in_time(y, T).type_as(v), S


def delta_attention(
    q: Queries,
    k: OwnKeys,
    v: OwnValues,
    beta: Float[Tensor, "B H T"],
    log_decay: Float[Tensor, "B H T *K"] | None = None,
    *,
    state: Sums | None = None,
) -> tuple[Mixed, Sums]:
    """What queries read after the delta rule in causal order, and the state after the last token, from that before the first (None: zero).

    beta: how much of the erased is written anew, from 0 to 2 for keys of unit norm. log_decay (<= 0): as above; None: nothing decays. A token
    with beta and log_decay of zero changes nothing. Sums are kept in float32 at least.
    """
    dtype, T = wide_type(q), q.shape[2]
    g = torch.zeros_like(beta) if log_decay is None else _ranged(log_decay, dtype)
    g = g if g.ndim == 4 else g[..., None]
    C = CHUNK if g.shape[3] == 1 else CHUNK // 4
    whole = torch.compiler.is_exporting()
    C = min(C, T) if whole else fitted(C, T)
    at = _chunks(q.to(dtype), k.to(dtype), g.to(dtype), C, whole=whole, erased=True)
    qk, kk = at.pairs
    wide, b = (
        z[:, :, None] if whole else in_chunks(z, C)
        for z in (v.to(dtype), beta[..., None].to(dtype))
    )
    right = torch.cat([b * wide, b * (at.k * at.up)], -1)
    solved = torch.linalg.solve_triangular(b * kk, right, upper=False, unitriangular=True)
    U, W = solved.split([v.shape[-1], k.shape[-1]], -1)
    chunks = at.read, qk, U, W, at.gain, at.up[:, :, :, -1:].mT
    y, S = choose("delta scan", scanned)(_begun(at, v, state), *chunks)
    return in_time(y, T).type_as(v), S


def scanned(S: Sums, *chunks: Tensor) -> tuple[Float[Tensor, "B H N C V"], Tensor]:
    """What the chunks read, one after the other, and the state after the last. chunks: q, q k^T, U, W, k^T and what each keeps, [B H N _ _]."""
    read = []
    for q, qk, U, W, k, kept in zip(*(z.unbind(2) for z in chunks), strict=True):
        u = U - W @ S
        read.append(q @ S + qk @ u)
        S = kept * S + k @ u
    return torch.stack(read, 2), S
