"""Softmax attention to slots, each made of a few neighbouring keys (memory-compressed attention, Liu et al. 2018, arXiv 1801.10198).

    y = softmax(q k'^T / sqrt(K)) v',   slot c of k', v' is made of the tokens c s .. c s + s - 1

Slots are counted from the first token, whatever the length. Causal: a query sees the slots complete at its own position, and an optional
first slot that all see. Time grows as T^2 K / s.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from regard.core import OPEN, Keys, Mask, Mixed, Queries, Streamed, TensorMap, Values, as_state
from regard.functional.cache import (
    Lengths,
    NewKeys,
    Valid,
    advance,
    append,
    is_ours,
    most_in,
    place,
    readable,
    same_in_all,
)
from regard.functional.rows import TILE, Impl, choose, cleared, in_chunks, pick, tiled, upto
from regard.functional.softmax import attend as attend_rows, softmax_rows

Compress = TensorMap  # [B H (n s) K] -> [B H n K], s the factor
Slots = Float[Tensor, "B H C K"]
One = Float[Tensor, "B H 1 K"]  # token of each row


class First(NamedTuple):
    """A slot before the others, which every query sees that is not before the first key."""

    k: One
    v: Float[Tensor, "B H 1 V"]
    late: bool  # the others appear one token after they are complete


def compressed_attention(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    factor: int,
    compress_k: Compress,
    compress_v: Compress,
    first: First | None = None,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Mixed:
    """softmax(q k'^T / sqrt(K)) v' over slots of `factor` keys; `mask.valid`, if any, has valid keys first.

    Bidirectional: the last slot is completed with zeros, and takes part if one of its tokens does; `first` does not.
    Causal: an incomplete slot does not exist.
    """
    T, S = q.shape[2], k.shape[2]
    if mask.causal:
        k = complete(k, factor, compress_k)
        v = complete(v, factor, compress_v)
        if first is not None:
            k = torch.cat([first.k, k], 2)
            v = torch.cat([first.v, v], 2)
        ahead = S - T if mask.shift is None else None
        last = mask.last_key(T, S, q.device)
        return slot_attention(q, k, v, last, factor=factor, first=first, ahead=ahead, impl=impl)
    C, taken = (S + factor - 1) // factor, None
    if mask.valid is not None:
        k, v = (cleared(z, mask.valid) for z in (k, v))
        taken = in_chunks(mask.valid[:, None, :, None], factor).any(3).mT[..., :C]
    k = compress_k(filled(k, factor))
    v = compress_v(filled(v, factor))
    return attend_rows(q, k[:, :, :C], v[:, :, :C], taken, impl=impl)


def complete(z: Keys, factor: int, compress: Compress) -> Slots:
    """The slots of all complete groups."""
    # The last group is dropped afterwards: a slice of z has a gradient full of zeros.
    return compress(filled(z, factor))[:, :, : z.shape[2] // factor]


def filled(z: Shaped[Tensor, "B H S K"], factor: int) -> Shaped[Tensor, "B H S2 K"]:
    """The last group completed with zeros; see `in_chunks`."""
    return in_chunks(z, factor).flatten(2, 3)


def slot_attention(
    q: Queries,
    k: Slots,
    v: Float[Tensor, "B H C V"],
    last: Int[Tensor, "b T"],
    *,
    factor: int,
    first: First | None,
    ahead: int | None = None,
    impl: Impl,
) -> Mixed:
    """Queries see the slots complete at their position `last` (below 0: nothing, not even the first slot).

    first: k and v begin with it. ahead: says that last[:, i] is i + ahead, so that slots after those of a tile are left out.
    """
    T = q.shape[2]
    lead = int(first is not None)
    late = int(first is not None and first.late)
    softmax = choose("softmax", softmax_rows, impl, tile=TILE)

    def some(rows: slice, q: Tensor, last: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if ahead is not None and rows.stop < T:
            seen = max(lead + (rows.stop + ahead - late) // factor, 1)
            k, v = k[:, :, :seen], v[:, :, :seen]
        count = torch.where(last < 0, 0, lead + (last + 1 - late) // factor)
        allowed = (upto(k.shape[2], k) < count) | (count < 1)
        return softmax(q, k, v, allowed).masked_fill(count < 1, 0)

    return tiled(some, impl, (q, last[:, None, :, None]), k, v)


@as_state
class State(Streamed):
    k: Slots  # the first slot, if any, then length // factor slots
    v: Float[Tensor, "B H C V"]
    rest_k: Float[Tensor, "B H s K"]  # factor - 1; length % factor of them wait for their slot
    rest_v: Float[Tensor, "B H s V"]
    length: Lengths


def extend(
    q: NewKeys,
    k: NewKeys,
    v: NewKeys,
    state: State,
    *,
    factor: int,
    compress_k: Compress,
    compress_v: Compress,
    first: First | None,
    valid: Valid,
    donate: bool,
    impl: Impl,
) -> tuple[NewKeys, State]:
    """The causal form for the next N tokens. first: the slot that a row gets with its first token."""
    N, lead = q.shape[2], int(first is not None)
    length = advance(state.length, valid, N)
    at = same_in_all(state.length) if N == 1 and valid is None else None
    if at is not None:
        y, state = _extend_one(
            q, k, v, state, at, factor, compress_k, compress_v, first, donate, impl
        )
        return y, replace(state, length=length)
    before, now = state.length // factor, length // factor
    slot = upto((factor - 1 + N) // factor, q)
    exists = slot < (now - before)[:, None]
    column = lead + before[:, None] + slot
    most = most_in(length, None if state.most is None else state.most + N)
    room = lead + (state.k.shape[2] + len(slot) if most is None else most // factor)
    begins = (state.length == 0)[:, None]
    waiting = ((now - before) * factor)[:, None] + upto(factor - 1, q)

    def kept(store, rest, new, begin, compress) -> tuple[Tensor, Tensor]:
        """Slots and waiting tokens of one side."""
        new = _append_rest(rest, new, state.length, factor)
        ours = donate
        if begin is not None:
            front = torch.zeros_like(begins, dtype=torch.long)
            store = write(store, begin, front, begins, room, donate)
            ours = True  # the store was written just now, and nobody else holds it
        slots = compress(new[:, :, : len(slot) * factor])
        rest = pick(new, waiting.clamp_max(new.shape[2] - 1))
        return write(store, slots, column, exists, room, ours), rest

    keys, rest_k = kept(state.k, state.rest_k, k, first and first.k, compress_k)
    values, rest_v = kept(state.v, state.rest_v, v, first and first.v, compress_v)
    last = place(state.length, valid, N)
    if N == 1 and not readable(length):  # a step keeps its shapes
        room = keys.shape[2]
    seen = keys[:, :, :room], values[:, :, :room]
    y = slot_attention(q, *seen, last, factor=factor, first=first, impl=impl)
    return y, State(keys, values, rest_k, rest_v, length)


def _extend_one(
    q: One,
    k: One,
    v: One,
    state: State,
    at: int,
    factor: int,
    compress_k: Compress,
    compress_v: Compress,
    first: First | None,
    donate: bool,
    impl: Impl,
) -> tuple[One, State]:
    """One token at place `at` of every row: no mask, and no copy of the store."""
    lead = int(first is not None)
    column, waiting = lead + at // factor, at % factor

    def kept(store, rest, new, begin, compress) -> tuple[Tensor, Tensor]:
        """Slots and waiting tokens of one side."""
        if begin is not None and at == 0:
            store = append(store, begin, 0, donate)
        rest = torch.cat([rest[:, :, :waiting], new, rest[:, :, waiting + 1 :]], 2)
        if waiting == factor - 1:  # the slot is complete
            return append(store, compress(rest), column, donate), rest[:, :, :waiting]
        # Where it is not ours, the owner of the earlier state may write behind its slots.
        return store if is_ours(donate, store) else store[:, :, :column], rest

    keys, rest_k = kept(state.k, state.rest_k, k, first and first.k, compress_k)
    values, rest_v = kept(state.v, state.rest_v, v, first and first.v, compress_v)
    seen = lead + (at + 1 - int(first is not None and first.late)) // factor
    y = torch.zeros_like(q)
    if seen:
        y = attend_rows(q, keys[:, :, :seen], values[:, :, :seen], impl=impl)
    return y, replace(state, k=keys, v=values, rest_k=rest_k, rest_v=rest_v)


def _append_rest(
    rest: Float[Tensor, "B H s K"], new: NewKeys, length: Lengths, factor: int
) -> Float[Tensor, "B H n K"]:
    """The waiting tokens and the new ones behind them, without a gap in any row."""
    column = upto(rest.shape[2] + new.shape[2], new)
    waiting = (length % factor)[:, None]
    index = torch.where(column < waiting, column, column + rest.shape[2] - waiting)
    return pick(torch.cat([rest, new], 2), index.clamp_max(len(column) - 1))


def write(
    store: Slots,
    new: Float[Tensor, "B H n K"],
    at: Int[Tensor, "B n"],
    exists: Bool[Tensor, "B n"],
    room: int,
    donate: bool,
) -> Float[Tensor, "B H C2 K"]:
    """Writes `new` to these columns of `store`, where they exist; `room`: columns needed."""
    C = store.shape[2]
    room = max(room, new.shape[2])  # so that the columns of a row are distinct modulo the room
    if C < room:
        store = F.pad(store, (0, 0, 0, (2 * room if donate else room) - C))
    index = (at % store.shape[2])[:, None, :, None].expand_as(new)
    new = torch.where(exists[:, None, :, None], new, store.gather(2, index))
    ours = is_ours(donate, store, new)
    return store.scatter_(2, index, new) if ours else store.scatter(2, index, new)
