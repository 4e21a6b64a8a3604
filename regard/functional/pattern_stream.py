"""Streams over a pattern (see `functional.pattern`): the keys that later queries may still see, and nothing else.

A pattern of bounded reach sees its first `sinks` tokens, and the last `reach` before a query: these are kept. Without a bound every key is kept.
A step is the same softmax over the kept keys and the new ones, whose positions are given; a long step is cut into chunks, each of which sees the
sinks, and the `reach` keys before it.
"""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core import Keys, Streamed, as_state
from regard.functional.cache import Lengths, NewKeys, NewValues, Valid, advance, columns, put
from regard.functional.global_rows import KeysAndValues, joined
from regard.functional.pattern import beside
from regard.functional.patterns import Pattern
from regard.functional.rows import (
    TILE,
    Impl,
    in_time,
    masked_softmax,
    pick,
    scores,
    take,
    tiled,
    upto,
)

CHUNK = 64
"""New tokens that are compared with the same keys."""


@as_state
class State(Streamed):
    """Keys and values that later queries may see.

    A pattern of bounded reach keeps its first `sinks` tokens, and the last `reach`, the last token in the last column; one without bound
    keeps token t in column t, and nothing apart.
    """

    k: Float[Tensor, "B H C K"]
    v: Float[Tensor, "B H C V"]
    first_k: Float[Tensor, "B H sinks K"]
    first_v: Float[Tensor, "B H sinks V"]
    length: Lengths


def extend(
    q: NewKeys,
    k: NewKeys,
    v: NewValues,
    state: State,
    *,
    pattern: Pattern,
    valid: Valid,
    donate: bool,
    prefix: KeysAndValues | None,
    impl: Impl,
) -> tuple[NewValues, State]:
    """Causal outputs for the next N tokens, valid ones first in each row, and the state after them."""
    N = q.shape[2]
    reach = pattern.reach
    sinks = pattern.sinks
    attention = partial(attend_next, pattern=pattern, chunk=getattr(impl, "chunk", None) or CHUNK)
    if reach is None:
        at = columns(state, valid, N, state.k, donate)
        k = put(state.k, k, at, donate)
        v = put(state.v, v, at, donate)
        seen = joined(prefix, (k[:, :, : at.seen], v[:, :, : at.seen]))
        y = attention(q, *seen, query=at.query, key=at.key)
        return y, replace(state, k=k, v=v, length=at.length)

    before = state.length[:, None]
    column = upto(sinks + reach + N, q)
    sink = torch.where(column < before, column, sinks + column - before)[:, :sinks]
    sink = sink.clamp_max(sinks + torch.sym_min(sinks, N) - 1)
    length = advance(state.length, valid, N)
    last = (length - state.length)[:, None] + sinks + column[:reach]

    def stored(first: Tensor, latest: Tensor, new: Tensor) -> Keys:
        if sinks == 0:
            return torch.cat([latest, new], 2)
        first = pick(torch.cat([first, new[:, :, :sinks]], 2), sink)
        return torch.cat([first, latest, new], 2)

    k = stored(state.first_k, state.k, k)
    v = stored(state.first_v, state.v, v)
    key = before + column - sinks - reach
    key = torch.where(column < sinks, column, key.masked_fill(key < sinks, -1))
    query = before + upto(N, q)
    seen = joined(prefix, (k, v))
    y = attention(q, *seen, query=query, key=key, store=(sinks, reach))
    latest = [z[:, :, sinks + N :] if valid is None else pick(z, last) for z in (k, v)]
    return y, State(latest[0], latest[1], k[:, :, :sinks], v[:, :, :sinks], length)


def attend_next(q, k, v, *, pattern: Pattern, query, key, store=None, chunk=CHUNK) -> NewValues:
    """Each query over the keys of its pattern, and those of the prefix, which come first.

    query, key: positions, -1 where there is no token. store: sinks and reach of the keys before those of the new tokens: a chunk of queries sees
    these alone.
    """
    N, S = q.shape[2], key.shape[1]
    E = k.shape[2] - S
    if store is not None and N > chunk:
        sinks, reach = store
        first = chunk * upto((N + chunk - 1) // chunk, q)[:, None]
        i = first + upto(chunk, q)
        j = beside(upto(sinks, q), first + sinks + upto(reach + chunk, q))
        key = torch.where(j < S, key[:, j.clamp_max(S - 1)], -1)
        i, j = i.clamp_max(N - 1), j.clamp_max(S - 1) + E
        j = beside(upto(E, q), j)
        q = take(q, i)
        k = take(k, j)
        v = take(v, j)
        query = query[:, i]
    else:
        q, k, v = (z.unsqueeze(2) for z in (q, k, v))
        query, key = query[:, None], key[:, None]

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H n t V"]:
        i = query[:, None, :, rows, None]
        j = key[:, None, :, None]
        pairs = pattern.contains(i, j) & (j >= 0) & (j <= i)
        pairs = F.pad(pairs, (E, 0), value=True)  # all see the keys of a prefix
        return masked_softmax(scores(q, k), pairs).type_as(v) @ v

    return in_time(tiled(some, TILE, q, k, v), N)
