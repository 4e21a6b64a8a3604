"""Streaming along sorted orders: each group keeps its last tokens in a ring, in each of R rounds.

This is what `order.band` computes, step by step. A group's n-th token goes to place n mod width of its ring. Absent
tokens have a group of their own behind the others, where nobody looks.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.functional.shared.cache import is_ours
from regard.functional.softmax.dense import masked_softmax, softmax_attention

CHUNK = 32  # tokens that meet the rings at once


class RingState(NamedTuple):
    k: Float[Tensor, "B H R G W K"]
    v: Float[Tensor, "B H R G W V"]
    code: Int[
        Tensor, "B H R G W R"
    ]  # of each stored token and round: place in its group, times G, plus its group
    had: Int[Tensor, "B H R G"]  # tokens, of each group
    length: Int[Tensor, "B"]


def empty_rings(
    like: Tensor,
    batch_size: int,
    num_heads: int,
    head_dim: int,
    rounds: int,
    groups: int,
    width: int,
) -> RingState:
    """The state before the first token, in the dtype and on the device of `like`."""
    shape = (batch_size, num_heads, rounds, groups + 1)
    store = like.new_zeros(*shape, width, head_dim)
    count = torch.zeros(shape, dtype=torch.long, device=like.device)
    code = count.new_zeros(*shape, width, rounds)
    return RingState(store, store.clone(), code, count, count.new_zeros(batch_size))


def extend_rings(
    q: Float[Tensor, "B H N K"],
    k: Float[Tensor, "B H N K"],
    v: Float[Tensor, "B H N V"],
    group: Int[Tensor, "B H R N"],
    state: RingState,
    *,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
    donate: bool = False,
) -> tuple[Float[Tensor, "B H N V"], RingState]:
    """Causal outputs for the next N tokens, and the state after them; `length` is the caller's to advance.

    exclude_self: a token sees itself only where no round offers it an earlier one; otherwise it always sees itself.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    how = {
        "scale": scale,
        "exclude_self": exclude_self,
        "count_once": count_once,
        "donate": is_ours(donate, k, state.k),
    }
    if q.shape[2] == 1:
        return _one_more(q, k, v, group, state, **how)
    size, parts = min(CHUNK, state.k.shape[4]), []
    for start in range(0, q.shape[2], size):
        new = slice(start, start + size)
        y, state = _extend(
            q[:, :, new],
            k[:, :, new],
            v[:, :, new],
            group[..., new],
            state,
            **how,
        )
        parts.append(y)
    return torch.cat(parts, dim=2), state


def _extend(q, k, v, group, state: RingState, *, scale, exclude_self, count_once, donate):
    G, W = state.k.shape[3:5]
    n, R = q.shape[2], group.shape[2]
    before = torch.ones(n, n, dtype=torch.bool, device=q.device).tril(-1)
    same = (group[..., :, None] == group[..., None, :]) & before
    seen = state.had.gather(3, group)  # tokens of one's group that the rings have met
    place = seen + same.sum(-1)

    slot = torch.arange(W, device=q.device)
    last = seen[..., None] - 1
    stored = last - (last - slot) % W  # which of the group's tokens a slot holds; below 0: none yet
    in_ring = (stored >= 0) & (place[..., None] - stored <= W)
    in_chunk = same & (place[..., :, None] - place[..., None, :] <= W)
    if count_once and R > 1:
        in_ring &= ~_met_before(_rings_of(state.code, group), group, place, G, W)
    count = in_chunk.sum(2)
    if not exclude_self:
        count = count + torch.eye(n, dtype=count.dtype, device=q.device)

    ring_k, ring_v = _rings_of(state.k, group), _rings_of(state.v, group)
    ring_scores = torch.einsum("bhnk,bhrnwk->bhnrw", q, ring_k).flatten(3)
    chunk_scores = q @ k.transpose(-1, -2)
    scores = scale * torch.cat([ring_scores, chunk_scores], dim=-1)
    if not count_once:
        counted = count.clamp(min=1).to(scores.dtype).log()
        scores = scores + torch.cat([torch.zeros_like(ring_scores), counted], dim=-1)
    allowed = torch.cat([in_ring.transpose(2, 3).flatten(3), count > 0], dim=-1)
    weights = masked_softmax(scores, allowed)
    from_rings, from_chunk = weights.split([R * W, n], dim=-1)
    y = torch.einsum("bhnrw,bhrnwv->bhnv", from_rings.unflatten(3, (R, W)), ring_v) + from_chunk @ v
    if exclude_self:
        y = torch.where(allowed.any(-1, keepdim=True), y, v)

    return y, _after(state, k, v, group, place, donate)


def _one_more(q, k, v, group, state: RingState, *, scale, exclude_self, count_once, donate):
    """The same for one token, which meets no other of its call."""
    G, W = state.k.shape[3:5]
    place = state.had.gather(3, group)
    allowed = torch.arange(W, device=q.device) < place[..., None]
    if count_once and group.shape[2] > 1:
        allowed &= ~_met_before(_rings_of(state.code, group), group, place, G, W)
    allowed = allowed.flatten(2)[:, :, None]
    keys, values = (_rings_of(z, group).flatten(2, 4) for z in (state.k, state.v))
    if not exclude_self:
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        allowed = F.pad(allowed, (0, 1), value=True)
    y = softmax_attention(q, keys, values, mask=Mask(pairwise=allowed), scale=scale)
    if exclude_self:
        y = torch.where(allowed.any(-1, keepdim=True), y, v)
    return y, _after(state, k, v, group, place, donate)


def _after(state: RingState, k, v, group, place, donate) -> RingState:
    """The new tokens in their rings."""
    G, W, R = state.k.shape[3], state.k.shape[4], group.shape[2]
    index = group * W + place % W
    codes = (place * G + group).transpose(2, 3)[:, :, None].expand(-1, -1, R, -1, -1)
    return RingState(
        _stored(state.k, k[:, :, None].expand(-1, -1, R, -1, -1), index, donate),
        _stored(state.v, v[:, :, None].expand(-1, -1, R, -1, -1), index, donate),
        _stored(state.code, codes, index, donate),
        state.had.scatter_add(3, group, torch.ones_like(group)),
        state.length,
    )


def _met_before(
    code: Int[Tensor, "B H R N W R"],
    group: Int[Tensor, "B H R N"],
    place: Int[Tensor, "B H R N"],
    G: int,
    W: int,
) -> Bool[Tensor, "B H R N W"]:
    """Which tokens of a round's ring an earlier round shows too. code: of these tokens."""
    group, place = (z.transpose(2, 3)[:, :, None, :, None] for z in (group, place))
    apart = code - group  # a multiple of G in one group: the stored token's place there, times G
    shown = (apart % G == 0) & (apart >= (place - W) * G)
    earlier = torch.ones(code.shape[2], code.shape[5], dtype=torch.bool, device=code.device)
    return (shown & earlier.tril_(-1)[:, None, None]).any(-1)


def _rings_of(store: Tensor, group: Int[Tensor, "B H R N"]) -> Tensor:
    """[B H R G W K] -> [B H R N W K]: the ring of each token's group, row by row."""
    B, H, R, G = store.shape[:4]
    first = torch.arange(0, B * H * R * G, G, device=store.device)
    index = group.flatten(0, 2) + first[:, None]
    rows = store.flatten(4).flatten(0, 3).index_select(0, index.flatten())
    return rows.view(*group.shape, *store.shape[4:])


def _stored(store: Tensor, new: Tensor, index: Int[Tensor, "B H R N"], donate: bool) -> Tensor:
    flat = store.flatten(3, 4)
    index = index[..., None].expand(*index.shape, flat.shape[-1])
    new = new.to(flat.dtype)
    flat = flat.scatter_(3, index, new) if donate else flat.scatter(3, index, new)
    return flat.view_as(store)
