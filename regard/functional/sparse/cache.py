"""Streaming over a pattern: the keys that later queries may still ask for, and nothing else.

A pattern of bounded reach keeps its first `sinks` tokens and the last `reach`: a store of one size from the start.
Where the store is ours to write over, single tokens are put behind it, until twice its size is full and the ones that
no query asks for are let go of together. Without a bound every key is kept.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import rows_at
from regard.functional.shared.cache import advance, append, is_ours, place, same_in_all
from regard.functional.shared.implementation import readable
from regard.functional.softmax.dense import softmax_attention
from regard.functional.sparse.patterns import Pattern

CHUNK = 128  # tokens that meet the store at once; single tokens behind a small store


class PatternState(NamedTuple):
    k: Float[Tensor, "B H C K"]
    v: Float[Tensor, "B H C V"]
    position: Int[
        Tensor, "B n"
    ]  # of each stored token, -1 where there is none; n of the C rows are filled
    length: Int[Tensor, "B"]


def empty_state(
    like: Tensor,
    batch_size: int,
    num_heads: int,
    head_dim: int,
    pattern: Pattern,
    max_len: int | None,
) -> PatternState:
    """The state before the first token, in the dtype and on the device of `like`."""
    room = max_len or 0 if pattern.reach is None else pattern.sinks + pattern.reach
    n = 0 if pattern.reach is None else room
    store = like.new_zeros(batch_size, num_heads, room, head_dim)
    position = torch.full((batch_size, n), -1, dtype=torch.long, device=like.device)
    return PatternState(store, store.clone(), position, position.new_zeros(batch_size))


def extend_pattern(
    q: Float[Tensor, "B H N K"],
    k: Float[Tensor, "B H N K"],
    v: Float[Tensor, "B H N V"],
    state: PatternState,
    *,
    pattern: Pattern,
    valid: Bool[Tensor, "B N"] | None = None,
    donate: bool = False,
    external: tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]] | None = None,
) -> tuple[Float[Tensor, "B H N V"], PatternState]:
    """Causal outputs for the next N tokens, valid ones first in each row, and the state after them."""
    if q.shape[2] <= CHUNK:
        return _extend(q, k, v, state, pattern, valid, donate, external)
    parts = []
    for start in range(0, q.shape[2], CHUNK):
        new = slice(start, start + CHUNK)
        of_chunk = None if valid is None else valid[:, new]
        y, state = _extend(
            q[:, :, new], k[:, :, new], v[:, :, new], state, pattern, of_chunk, donate, external
        )
        donate = True  # what lies between two chunks is ours
        parts.append(y)
    return torch.cat(parts, dim=2), state


def _extend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: PatternState,
    pattern: Pattern,
    valid: Tensor | None,
    donate: bool,
    external: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, PatternState]:
    N, n, reach, sinks = q.shape[2], state.position.shape[1], pattern.reach, pattern.sinks
    new = place(state.length, valid, N)
    length = advance(state.length, valid, N)
    position = torch.cat([state.position, new], dim=1)
    grows = reach is None
    if reach is not None and N == 1 and valid is None:
        grows = is_ours(donate, state.k, k, v) and n < sinks + reach + max(sinks + reach, CHUNK)
    donate = donate and grows
    k, v = append(state.k, k, n, donate), append(state.v, v, n, donate)
    first = 0 if reach is None or sinks else n - reach  # no query asks for what lies before
    met_k, met_v = k[:, :, first : n + N], v[:, :, first : n + N]
    if _sees_all(pattern, state.length, N, valid):
        mask = OPEN
    else:
        i, j = new[:, None, :, None], position[:, None, None, first:]
        seen = pattern.contains(i, j) & (j >= 0) & (j <= i)
        mask = Mask(pairwise=seen)
        if reach is None and N == 1 and seen.numel() and readable(k):
            met_k, met_v, mask = _met_by_one(k, v, seen[:, :, 0])
    if external is not None:
        met_k, met_v = (
            torch.cat([external[0], met_k], dim=2),
            torch.cat([external[1], met_v], dim=2),
        )
        if mask.pairwise is not None:
            mask = Mask(pairwise=F.pad(mask.pairwise, (external[0].shape[2], 0), value=True))
    y = softmax_attention(q, met_k, met_v, mask=mask)
    if grows:
        return y, PatternState(k, v, position, length)
    assert reach is not None
    if sinks == 0 and valid is None:  # the last ones: no index is needed
        last = slice(n + N - reach, n + N)
        return y, PatternState(k[:, :, last], v[:, :, last], position[:, last], length)
    since = state.length - (n - sinks - reach)  # the first of the tokens behind the store
    kept = _kept(sinks, reach, since, length, n + N)
    position = position.gather(1, kept)
    slot = torch.arange(sinks + reach, device=position.device)
    filled = torch.where(slot < sinks, slot < length[:, None], position >= sinks)
    return y, PatternState(
        _rows(k, kept), _rows(v, kept), position.masked_fill(~filled, -1), length
    )


def _sees_all(pattern: Pattern, before: Int[Tensor, "B"], N: int, valid: Tensor | None) -> bool:
    """Whether every key within reach is there and is seen by the new token, so that nothing is masked."""
    if N > 1 or valid is not None or not pattern.solid or pattern.reach is None:
        return False
    length = same_in_all(before)
    return length is not None and length >= pattern.reach


def _met_by_one(
    k: Float[Tensor, "B H C K"], v: Float[Tensor, "B H C V"], seen: Bool[Tensor, "#B #H n"]
) -> tuple[Tensor, Tensor, Mask]:
    """Of n stored keys those that a single query sees, each head its own; where these are most of them, all."""
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


def _rows(z: Float[Tensor, "B H n K"], index: Int[Tensor, "B C"]) -> Float[Tensor, "B H C K"]:
    return z.gather(2, index[:, None, :, None].expand(-1, z.shape[1], -1, z.shape[3]))


def _kept(sinks: int, reach: int, before: Tensor, after: Tensor, total: int) -> Int[Tensor, "B C"]:
    """Which rows of [store | new tokens] the next store holds: the first `sinks` tokens, and the last `reach`."""
    first = torch.arange(sinks, device=before.device).expand(before.shape[0], -1)
    first = torch.where(first < before[:, None], first, sinks + reach + first - before[:, None])
    last = sinks + (after - before)[:, None] + torch.arange(reach, device=before.device)
    return torch.cat([first, last], dim=1).clamp(max=total - 1)
