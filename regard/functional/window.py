"""Sliding-window attention (Parmar et al. 2018, arXiv 1802.05751; Beltagy et al. 2020, arXiv 2004.05150).

    y_i = sum_j a_ij v_j,   a_i = softmax of q_i . k_j / sqrt(K) over j in A_i
    A_i = { j : |i - j| <= w d, (i - j) mod d = 0 },   j <= i when causal

w is the window (of one side), d the dilation. Tokens of one remainder mod d see each other alone: they are a lane. Every lane is cut into
N blocks of c queries, and a block needs the s = w + c (+ w) keys from w steps before its first query:

    q [B H N d c K],   k [B H N d s K],   scores [B H N d c s]:   time and memory grow as T (w + c)

The blocks are copies by position: slices in a loop have a backward that grows as T^2. Keys may begin before the queries, and the last query
stands at the last key. So a stream is nothing else: its w d latest keys come before the new ones.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core import OPEN, Above0, Mask, Mixed, Queries, Streamed, as_state
from regard.functional.cache import Lengths, NewKeys, NewValues, Valid, advance
from regard.functional.rows import (
    Impl,
    choose,
    grouped,
    masked_softmax,
    of_any_length,
    pick,
    scores,
    take,
    tiled,
)
from regard.functional.softmax import capped

TILE = 128
"""Queries of a block, c. More of them: fewer and larger products, more of which is masked."""


def window_attention(
    q: Queries,
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    *,
    window: int,
    dilation: int = 1,
    soft_cap: Above0 | None = None,
    sinks: Float[Tensor, "H"] | None = None,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Mixed:
    """Each query over its window, as far as the mask allows; zero where it may see nothing. G divides H, S >= T.

    dilation: tokens from one key of a window to the next. soft_cap: c of c tanh(z / c), which scores become. sinks: one more score in each
    softmax, of no value. With global tokens, of which any token may be one, every query is compared with every key: time grows as T S.
    """
    return choose("window", attend, impl, tile=TILE)(
        q, k, v, window=window, dilation=dilation, soft_cap=soft_cap, sinks=sinks, mask=mask
    )


def attend(
    q, k, v, *, window, dilation, soft_cap=None, sinks=None, mask: Mask, tile=TILE
) -> Tensor:
    H, T = q.shape[1:3]
    S = k.shape[2]
    d = dilation
    k, v = grouped(k, H), grouped(v, H)
    if mask.global_tokens is not None:

        def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
            place = torch.arange(S, device=q.device)
            ahead = place - place[S - T :][rows, None]
            near = (ahead.abs() <= window * d) & (ahead % d == 0)
            pairs = mask.dense(T, S, pattern=near[None, None], rows=rows)
            return _weights(q, k, pairs, soft_cap, sinks).type_as(v) @ v

        return tiled(some, tile, q, k, v)

    w = torch.sym_min(window, S)
    c = torch.sym_min(tile, (T + d - 1) // d)
    free = torch.compiler.is_compiling() and of_any_length(T)
    c = torch.sym_max(c, 2) if free else c  # also for one token
    step = torch.arange(
        -w, c if mask.causal else c + w, device=q.device
    )  # from a block's first query to its keys
    ahead = step - torch.arange(c, device=q.device)[:, None]  # c s: from each query to each key
    near = (ahead >= -w) & (ahead <= (0 if mask.causal else w))

    N = (T + d * c - 1) // (d * c)
    if free:
        N += 1  # torch writes down that there is one block, or that there are more, and a program of any length has both
    first = d * c * torch.arange(N, device=q.device)[:, None, None]
    first = first + torch.arange(d, device=q.device)[:, None]  # N d 1: each block's first query
    i, j = first + d * step[w : w + c], first + d * step + S - T  # N d c, N d s: positions
    allowed = near & ((j >= 0) & (j < S))[:, :, None]
    i, j = i.clamp_max(T - 1), j.clamp(0, S - 1)  # copies of the last query are dropped below
    if mask.valid is not None:
        allowed = allowed & mask.valid[:, None, j][..., None, :]
    if mask.pairwise is not None:
        allowed = allowed & mask.pairwise[:, :, i[..., None], j[..., None, :]]

    y = _weights(take(q, i), take(k, j), allowed, soft_cap, sinks).type_as(v) @ take(v, j)
    return y.transpose(3, 4).flatten(2, 4)[:, :, :T]  # from N d c back to the order of time


def _weights(
    q: Float[Tensor, "B H *n t K"],
    k: Float[Tensor, "B H *n s K"],
    allowed: Bool[Tensor, "*b t s"],
    soft_cap: float | None,
    sinks: Float[Tensor, "H"] | None,
) -> Float[Tensor, "B H *n t s"]:
    z = scores(q, k)
    if sinks is not None:
        sink = sinks.type_as(z).view(-1, *[1] * (z.ndim - 2)).expand(*z.shape[:-1], 1)
        z = torch.cat([z, sink], -1)
        allowed = F.pad(allowed, (0, 1), value=True)
    a = masked_softmax(z if soft_cap is None else capped(z, soft_cap), allowed)
    return a if sinks is None else a[..., :-1]


@as_state
class State(Streamed):
    """The w d latest keys and values of each row, the last token in the last column."""

    k: Float[Tensor, "B G R K"]
    v: Float[Tensor, "B G R V"]
    length: Lengths


def extend(
    q: NewKeys,
    k: Float[Tensor, "B G N K"],
    v: Float[Tensor, "B G N V"],
    state: State,
    *,
    window: int,
    dilation: int,
    soft_cap: float | None,
    sinks: Float[Tensor, "H"] | None,
    valid: Valid,
    impl: Impl,
) -> tuple[NewValues, State]:
    """Causal outputs for the next N tokens, valid ones first in each row, and the state after them."""
    N, R = q.shape[2], state.k.shape[2]
    k = torch.cat([state.k, k], 2)
    v = torch.cat([state.v, v], 2)
    here = torch.arange(R + N, device=q.device) >= R - state.length[:, None]
    y = window_attention(
        q,
        k,
        v,
        window=window,
        dilation=dilation,
        soft_cap=soft_cap,
        sinks=sinks,
        mask=Mask(causal=True, valid=here),
        impl=impl,
    )
    length = advance(state.length, valid, N)
    last = (length - state.length)[:, None] + torch.arange(R, device=q.device)
    return y, State(pick(k, last), pick(v, last), length)
