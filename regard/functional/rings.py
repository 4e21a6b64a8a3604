"""The stream of `functional.sorted`: each group keeps its last W tokens in a ring, in each of R rounds.

A token is stored with its places of all rounds, so that the rings are read by the rule by which whole sequences are sorted.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.core import Streamed, as_state
from regard.functional.cache import Lengths, NewKeys, NewValues, Valid, advance, is_ours
from regard.functional.rows import masked_softmax, scores
from regard.functional.sorted import GAP, last_of_group

TILE = 32
"""Tokens of a step, each with a copy of the rings of its groups."""


@as_state
class State(Streamed):
    """The last W tokens of each group in each round: the n-th of a group is in slot n mod W. Group G holds the absent."""

    k: Float[Tensor, "B H R G1 W K"]
    v: Float[Tensor, "B H R G1 W V"]
    place: Int[Tensor, "B H R G1 W R"]  # in every round: GAP group + the number of earlier ones
    counts: Int[Tensor, "B H R G1"]  # tokens of each group so far
    length: Lengths


def empty(like: Float[Tensor, "B H 0 K"], rounds: int, groups: int, width: int) -> State:
    """The state before the first token."""
    shape = *like.shape[:2], rounds, groups + 1
    store = like.new_zeros(*shape, width, like.shape[3])
    count = like.new_zeros(shape, dtype=torch.long)
    nowhere = count.new_full((*shape, width, rounds), -GAP)
    return State(store, store.clone(), nowhere, count, count.new_zeros(len(like)))


def extend(
    q: NewKeys,
    k: NewKeys,
    v: NewValues,
    group: Int[Tensor, "B H R N"],
    state: State,
    *,
    scale: float | None,
    exclude_self: bool,
    count_once: bool = True,
    valid: Valid,
    donate: bool,
) -> tuple[NewValues, State]:
    """`attend` with `last_of_group` for the next N tokens, and the state after them."""
    W = state.k.shape[4]
    ours = is_ours(donate, k, state.k)
    parts = []
    window = last_of_group(W, include_self=not exclude_self)
    size = min(TILE, W)
    new = zip(*(z.split(size, 2) for z in (q, k, v)), group.split(size, 3), strict=True)
    for some_q, some_k, some_v, some_group in new:
        tokens = some_q, some_k, some_v, some_group
        y, state = _extend(*tokens, state, window, scale, exclude_self, count_once, ours)
        parts.append(y)
    return torch.cat(parts, 2), replace(state, length=advance(state.length, valid, q.shape[2]))


def _extend(q, k, v, group, state: State, window, scale, exclude_self, count_once, ours):
    R, n = group.shape[2:]
    W = state.k.shape[4]
    same = (group[..., None] == group[..., None, :]).tril(-1)  # earlier ones
    count = state.counts.gather(3, group) + same.sum(-1)
    place = (GAP * group + count).transpose(2, 3)  # B H n R

    def offered(store: Tensor, new: Tensor) -> Shaped[Tensor, "B H n R m K"]:
        """Gives each query the rings of its groups, and the tokens of this call."""
        B, H, R, G1 = store.shape[:4]
        first = torch.arange(0, B * H * R * G1, G1, device=store.device).view(B, H, R, 1)
        rings = store.flatten(0, 3).index_select(0, (group + first).transpose(2, 3).flatten())
        rings = rings.view(B, H, n, R, *store.shape[4:])
        return torch.cat([rings, new[:, :, None, None].expand(-1, -1, n, R, -1, -1)], 4)

    near = window.near(place[:, :, :, None, None], offered(state.place, place))  # B H n R m R
    allowed = near.diagonal(dim1=3, dim2=5).transpose(3, 4)
    if count_once and R > 1:
        before = group.new_ones(R, R, dtype=torch.bool).tril(-1)[:, None]
        allowed = allowed & ~(near & before).any(-1)
    allowed = allowed.flatten(3)[..., None, :]
    keys, values = (
        offered(z, new.type_as(z)).flatten(3, 4) for z, new in ((state.k, k), (state.v, v))
    )
    y = (masked_softmax(scores(q[:, :, :, None], keys, scale), allowed).type_as(v) @ values)[
        ..., 0, :
    ]
    if exclude_self:
        y = torch.where(allowed.any(-1), y, v)

    slot = (group * W + count % W)[..., None]

    def put(store: Tensor, new: Tensor) -> Tensor:
        flat = store.flatten(3, 4)
        new = new[:, :, None].expand(-1, -1, R, -1, -1).type_as(store)
        at = slot.expand_as(new)
        return (flat.scatter_(3, at, new) if ours else flat.scatter(3, at, new)).view_as(store)

    stores = put(state.k, k), put(state.v, v), put(state.place, place)
    counts = state.counts.scatter_add(3, group, torch.ones_like(group))
    return y, State(*stores, counts, state.length)
