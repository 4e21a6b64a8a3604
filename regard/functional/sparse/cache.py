"""Streaming over a pattern: the keys that later queries may still see, and nothing else.

A pattern of bounded reach keeps its first `sinks` tokens and the last `reach`: a store of constant size. Where the
storage was donated and lengths may be read, single tokens are appended until twice that size is full, and those that no
query sees any more are dropped together. Without a bound every key is kept, token t in column t.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import rows_at, tiles
from regard.functional.shared.cache import (
    advance,
    append,
    columns,
    is_ours,
    place,
    put,
    same_in_all,
)
from regard.functional.shared.implementation import Cut, Impl, cut
from regard.functional.softmax.dense import softmax_attention
from regard.functional.sparse.attention import pick
from regard.functional.sparse.patterns import Pattern


class State(NamedTuple):
    k: Float[Tensor, "B H C K"]
    v: Float[Tensor, "B H C V"]
    position: Int[
        Tensor, "B n"
    ]  # of the n stored tokens, -1: none; empty for a pattern without bound
    length: Int[Tensor, "B"]


def initial_state(
    like: Tensor,
    batch_size: int,
    num_heads: int,
    head_dim: int,
    pattern: Pattern,
    max_len: int | None,
) -> State:
    """The state before the first token, in the dtype and on the device of `like`."""
    room = max_len or 0 if pattern.reach is None else pattern.sinks + pattern.reach
    n = 0 if pattern.reach is None else room
    store = like.new_zeros(batch_size, num_heads, room, head_dim)
    position = torch.full((batch_size, n), -1, dtype=torch.long, device=like.device)
    return State(store, store.clone(), position, position.new_zeros(batch_size))


def extend(
    q: Float[Tensor, "B H N K"],
    k: Float[Tensor, "B H N K"],
    v: Float[Tensor, "B H N V"],
    state: State,
    *,
    pattern: Pattern,
    valid: Bool[Tensor, "B N"] | None = None,
    donate: bool = False,
    prefix: tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]] | None = None,
    impl: Impl = "auto",
) -> tuple[Float[Tensor, "B H N V"], State]:
    """Causal outputs for the next N tokens, valid ones first in each row, and the state after them."""
    how = cut("pattern", impl, q)
    if q.shape[2] <= how.chunk:
        return _extend(q, k, v, state, pattern, valid, donate, prefix, how)
    parts = []
    for new in tiles(q.shape[2], how.chunk):
        part = q[:, :, new], k[:, :, new], v[:, :, new]
        seen = None if valid is None else valid[:, new]
        y, state = _extend(*part, state, pattern, seen, donate, prefix, how)
        donate = True  # the state between two chunks is ours
        parts.append(y)
    return torch.cat(parts, dim=2), state


def _extend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: State,
    pattern: Pattern,
    valid: Tensor | None,
    donate: bool,
    prefix: tuple[Tensor, Tensor] | None,
    how: Cut,
) -> tuple[Tensor, State]:
    N, n, reach, sinks = q.shape[2], state.position.shape[1], pattern.reach, pattern.sinks
    if reach is None:
        return _extend_all(q, k, v, state, pattern, valid, donate, prefix, how)
    new = place(state.length, valid, N)
    length = advance(state.length, valid, N)
    position = torch.cat([state.position, new], dim=1)
    grows = False
    if N == 1 and valid is None and how.readable:
        most = sinks + reach + max(sinks + reach, how.chunk)
        grows = n < most and is_ours(donate, state.k, k, v)
    donate = donate and grows
    k, v = append(state.k, k, n, donate), append(state.v, v, n, donate)
    first = 0 if sinks else n - reach  # no query sees what comes before
    mask = OPEN
    if not _sees_all(pattern, state.length, N, valid):
        mask = Mask(pairwise=_seen(pattern, new, position[:, first:]))
    y = _attend(q, k[:, :, first : n + N], v[:, :, first : n + N], mask, prefix)
    if grows:
        return y, State(k, v, position, length)
    if sinks == 0 and valid is None:  # the last ones: no index is needed
        last = slice(n + N - reach, n + N)
        return y, State(k[:, :, last], v[:, :, last], position[:, last], length)
    since = state.length - (n - sinks - reach)  # the first of the tokens behind the store
    kept = _kept(sinks, reach, since, length, n + N)
    position = position.gather(1, kept)
    slot = torch.arange(sinks + reach, device=position.device)
    filled = torch.where(slot < sinks, slot < length[:, None], position >= sinks)
    return y, State(pick(k, kept), pick(v, kept), position.masked_fill(~filled, -1), length)


def _extend_all(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: State,
    pattern: Pattern,
    valid: Tensor | None,
    donate: bool,
    prefix: tuple[Tensor, Tensor] | None,
    how: Cut,
) -> tuple[Tensor, State]:
    """The step of a pattern without bound."""
    at = columns(state.length, valid, q.shape[2], state.k, donate)
    k, v = put(state.k, k, at, donate), put(state.v, v, at, donate)
    seen = _seen(pattern, at.query, at.key)
    if q.shape[2] == 1 and how.readable:
        found = _seen_by_one(k, v, seen[:, :, 0])
    else:
        found = k[:, :, : at.seen], v[:, :, : at.seen], Mask(pairwise=seen)
    return _attend(q, *found, prefix), State(k, v, state.position, at.length)


def _seen(
    pattern: Pattern, query: Int[Tensor, "B N"], key: Int[Tensor, "B S"]
) -> Bool[Tensor, "b h N S"]:
    i, j = query[:, None, :, None], key[:, None, None]
    return pattern.contains(i, j) & (j >= 0) & (j <= i)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, prefix: tuple[Tensor, Tensor] | None
) -> Float[Tensor, "B H N V"]:
    if prefix is not None:
        k, v = torch.cat([prefix[0], k], dim=2), torch.cat([prefix[1], v], dim=2)
        if mask.pairwise is not None:
            mask = Mask(pairwise=F.pad(mask.pairwise, (prefix[0].shape[2], 0), value=True))
    return softmax_attention(q, k, v, mask=mask)


def _sees_all(pattern: Pattern, before: Int[Tensor, "B"], N: int, valid: Tensor | None) -> bool:
    """True if every key within reach is stored and seen by the one new token, so that nothing is masked."""
    if N > 1 or valid is not None or not pattern.solid or pattern.reach is None:
        return False
    length = same_in_all(before)
    return length is not None and length >= pattern.reach


def _seen_by_one(
    k: Float[Tensor, "B H C K"], v: Float[Tensor, "B H C V"], seen: Bool[Tensor, "#B #H n"]
) -> tuple[Tensor, Tensor, Mask]:
    """The stored keys that a single query sees, per head; all n of them if it sees most."""
    n, count = seen.shape[2], seen.cumsum(2)
    most = int(count[..., -1].max())
    if 2 * most > n:
        return k[:, :, :n], v[:, :, :n], Mask(pairwise=seen[:, :, None])
    nth = torch.arange(1, most + 1, device=k.device).expand(*count.shape[:2], most).contiguous()
    index = torch.searchsorted(count, nth)
    there = index < n  # not where a head sees fewer
    index = index.clamp(max=n - 1).expand(*k.shape[:2], most).flatten(0, 1)
    found = (rows_at(z.flatten(0, 1), index).unflatten(0, z.shape[:2]) for z in (k, v))
    return *found, OPEN if there.all() else Mask(pairwise=there[:, :, None])


def _kept(sinks: int, reach: int, before: Tensor, after: Tensor, total: int) -> Int[Tensor, "B C"]:
    """Rows of [store | new tokens] that the next store holds: the first `sinks` tokens, and the last `reach`."""
    first = torch.arange(sinks, device=before.device).expand(before.shape[0], -1)
    first = torch.where(first < before[:, None], first, sinks + reach + first - before[:, None])
    last = sinks + (after - before)[:, None] + torch.arange(reach, device=before.device)
    return torch.cat([first, last], dim=1).clamp(max=total - 1)
