"""Streaming along sorted orders: each group keeps its last tokens in a ring, in each of R rounds.

This is what `order.band` computes, step by step. A group's n-th token goes to place n mod width of its ring. Absent
tokens have a group of their own behind the others, where nobody looks.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.functional.softmax import masked_softmax

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
    donate = donate and not (torch.is_grad_enabled() and (k.requires_grad or state.k.requires_grad))
    size, parts = min(CHUNK, state.k.shape[4]), []
    for start in range(0, q.shape[2], size):
        new = slice(start, start + size)
        y, state = _extend(
            q[:, :, new],
            k[:, :, new],
            v[:, :, new],
            group[..., new],
            state,
            scale,
            exclude_self,
            count_once,
            donate,
        )
        parts.append(y)
    return torch.cat(parts, dim=2), state


def _extend(q, k, v, group, state: RingState, scale, exclude_self, count_once, donate):
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
    if count_once:
        code = _rings_of(state.code, group)
        there, at = code % G, code // G
        for r in range(1, R):
            for earlier in range(r):
                mine = group[:, :, earlier, :, None], place[:, :, earlier, :, None]
                met = (there[:, :, r, ..., earlier] == mine[0]) & (
                    mine[1] - at[:, :, r, ..., earlier] <= W
                )
                in_ring[:, :, r] &= ~met
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

    index = group * W + place % W
    codes = (place * G + group).transpose(2, 3)[:, :, None].expand(-1, -1, R, -1, -1)
    after = RingState(
        _stored(state.k, k[:, :, None].expand(-1, -1, R, -1, -1), index, donate),
        _stored(state.v, v[:, :, None].expand(-1, -1, R, -1, -1), index, donate),
        _stored(state.code, codes, index, donate),
        state.had.scatter_add(3, group, torch.ones_like(group)),
        state.length,
    )
    return y, after


def _rings_of(store: Tensor, group: Int[Tensor, "B H R N"]) -> Tensor:
    """[B H R G W K] -> [B H R N W K]: the ring of each token's group."""
    index = group[..., None, None].expand(*group.shape, *store.shape[4:])
    return store.gather(3, index)


def _stored(store: Tensor, new: Tensor, index: Int[Tensor, "B H R N"], donate: bool) -> Tensor:
    flat = store.flatten(3, 4)
    index = index[..., None].expand(*index.shape, flat.shape[-1])
    new = new.to(flat.dtype)
    flat = flat.scatter_(3, index, new) if donate else flat.scatter(3, index, new)
    return flat.view_as(store)
