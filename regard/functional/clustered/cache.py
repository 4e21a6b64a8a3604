"""Streaming along sorted orders: each group keeps its last tokens in a ring, in each of R rounds.

This is what `order.band` computes, step by step. A group's n-th token goes to place n mod width of its ring. Absent
tokens have a group of their own behind the others, which no query belongs to.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.functional.shared.blocks import tiles
from regard.functional.shared.cache import is_ours
from regard.functional.shared.implementation import Impl, cut
from regard.functional.softmax.dense import softmax_attention


class State(NamedTuple):
    k: Float[Tensor, "B H R G W K"]
    v: Float[Tensor, "B H R G W V"]
    code: Int[
        Tensor, "B H R G W R"
    ]  # of each stored token and round: place in its group, times G, plus its group
    had: Int[Tensor, "B H R G"]  # tokens, of each group
    length: Int[Tensor, "B"]


def empty(
    like: Tensor,
    batch_size: int,
    num_heads: int,
    head_dim: int,
    rounds: int,
    groups: int,
    width: int,
) -> State:
    """The state before the first token, in the dtype and on the device of `like`."""
    shape = (batch_size, num_heads, rounds, groups + 1)
    store = like.new_zeros(*shape, width, head_dim)
    count = torch.zeros(shape, dtype=torch.long, device=like.device)
    code = count.new_zeros(*shape, width, rounds)
    return State(store, store.clone(), code, count, count.new_zeros(batch_size))


def extend(
    q: Float[Tensor, "B H N K"],
    k: Float[Tensor, "B H N K"],
    v: Float[Tensor, "B H N V"],
    group: Int[Tensor, "B H R N"],
    state: State,
    *,
    scale: float | None = None,
    exclude_self: bool = False,
    count_once: bool = True,
    donate: bool = False,
    impl: Impl = "auto",
) -> tuple[Float[Tensor, "B H N V"], State]:
    """Causal outputs for the next N tokens, and the state after them; `length` is the caller's to advance.

    exclude_self: a token sees itself only where no round offers it an earlier one; otherwise it always sees itself.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    ours, parts = is_ours(donate, k, state.k), []
    for new in tiles(q.shape[2], min(cut("clustered", impl, q).chunk, state.k.shape[4])):
        tokens = q[:, :, new], k[:, :, new], v[:, :, new], group[..., new]
        y, state = _extend(*tokens, state, scale, exclude_self, count_once, ours)
        parts.append(y)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2), state


def _extend(q, k, v, group, state: State, scale, exclude_self, count_once, ours):
    """Each query sees the rings of its groups, and the earlier tokens of the call."""
    (G, W), n, R = state.k.shape[3:5], q.shape[2], group.shape[2]
    seen = state.had.gather(3, group)  # tokens of one's group in the rings
    same = group.new_ones(n, n, dtype=torch.bool).tril(-1) & (
        group[..., :, None] == group[..., None, :]
    )
    place = seen + same.sum(-1)
    last = seen[..., None] - 1
    stored = last - (last - torch.arange(W, device=q.device)) % W  # place of what a slot holds
    in_ring = ((stored >= 0) & (place[..., None] - stored <= W)).transpose(2, 3)
    if count_once and R > 1:
        in_ring &= ~_in_earlier_round(_rings_of(state.code, group), group, place, G, W)
    keys, values = (_rings_of(z, group).flatten(3, 4) for z in (state.k, state.v))
    allowed = in_ring.flatten(3)
    if n > 1 or not exclude_self:
        in_call = same & (place[..., :, None] - place[..., None, :] <= W)
        in_call = in_call.any(2, keepdim=True) if count_once else in_call
        if not exclude_self:
            in_call[:, :, 0].diagonal(dim1=2, dim2=3).fill_(True)
        times = in_call.shape[2]
        allowed = torch.cat([allowed, in_call.transpose(2, 3).flatten(3)], dim=3)
        keys, values = (
            torch.cat([z, *[new[:, :, None].expand(-1, -1, n, -1, -1)] * times], dim=3)
            for z, new in ((keys, k), (values, v))
        )
    y = softmax_attention(  # each query has keys of its own, and so is a head of its own
        q.flatten(1, 2)[:, :, None],
        keys.flatten(1, 2),
        values.flatten(1, 2),
        mask=Mask(pairwise=allowed.flatten(1, 2)[:, :, None]),
        scale=scale,
    ).view(*q.shape[:3], -1)
    if exclude_self:
        y = torch.where(allowed.any(-1, keepdim=True), y, v)

    index = group * W + place % W
    codes = (place * G + group).transpose(2, 3)
    new_k, new_v, new_codes = (z[:, :, None].expand(-1, -1, R, -1, -1) for z in (k, v, codes))
    return y, State(
        _stored(state.k, new_k, index, ours),
        _stored(state.v, new_v, index, ours),
        _stored(state.code, new_codes, index, ours),
        state.had.scatter_add(3, group, torch.ones_like(group)),
        state.length,
    )


def _in_earlier_round(
    code: Int[Tensor, "B H N R W R"],
    group: Int[Tensor, "B H R N"],
    place: Int[Tensor, "B H R N"],
    G: int,
    W: int,
) -> Bool[Tensor, "B H N R W"]:
    """Which tokens of a round's ring an earlier round shows too. code: of these tokens."""
    group, place = (z.transpose(2, 3)[:, :, :, None, None] for z in (group, place))
    apart = code - group  # a multiple of G in one group: the stored token's place there, times G
    shown = (apart % G == 0) & (apart >= (place - W) * G)
    earlier = torch.ones(code.shape[3], code.shape[5], dtype=torch.bool, device=code.device)
    return (shown & earlier.tril_(-1)[:, None]).any(-1)


def _rings_of(store: Tensor, group: Int[Tensor, "B H R N"]) -> Tensor:
    """[B H R G W K] -> [B H N R W K]: the rings of each token's groups, row by row."""
    B, H, R, G = store.shape[:4]
    first = torch.arange(0, B * H * R * G, G, device=store.device).view(B, H, R, 1)
    index = (group + first).transpose(2, 3)
    rows = store.flatten(4).flatten(0, 3).index_select(0, index.flatten())
    return rows.view(*index.shape, *store.shape[4:])


def _stored(store: Tensor, new: Tensor, index: Int[Tensor, "B H R N"], ours: bool) -> Tensor:
    flat = store.flatten(3, 4)
    index = index[..., None].expand(*index.shape, flat.shape[-1])
    new = new.to(flat.dtype)
    flat = flat.scatter_(3, index, new) if ours else flat.scatter(3, index, new)
    return flat.view_as(store)
