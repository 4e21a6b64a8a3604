"""Streaming of Sinkhorn attention: what is sorted for a block stays beside the block's own keys until the next begins."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.functional.shared.blocks import rows_at
from regard.functional.shared.cache import columns, is_ours, put
from regard.functional.shared.implementation import readable
from regard.functional.shared.numerics import wide_type
from regard.functional.sinkhorn.attention import Join, beside_sorted, mixed
from regard.functional.softmax.dense import masked_softmax, softmax_attention

Sort = Callable[[Float[Tensor, "b G D"], Float[Tensor, "b H S K"]], Float[Tensor, "b H G N"]]
"""Scores of the first N blocks, whose keys are given, for the blocks whose summaries are given."""

Blocks = tuple[Float[Tensor, "B H C2 K"], Float[Tensor, "B H C2 V"]]
Tokens = tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S V"]]


class State(NamedTuple):
    k: Float[Tensor, "B H S K"]  # by position
    v: Float[Tensor, "B H S V"]
    block_k: Float[Tensor, "B H C2 K"]  # of the block that has begun: sorted for it, then its own
    block_v: Float[Tensor, "B H C2 V"]
    total: Float[Tensor, "B D"]  # of all tokens
    length: Int[Tensor, "B"]


def empty(
    like: Tensor,
    batch_size: int,
    num_heads: int,
    head_dim: int,
    block_size: int,
    *,
    max_len: int | None,
    dim: int,
) -> State:
    """The state before the first token, in the dtype and on the device of `like`."""
    room = -(-(max_len or 0) // block_size) * block_size
    store = like.new_zeros(batch_size, num_heads, room, head_dim)
    block = like.new_zeros(batch_size, num_heads, 2 * block_size, head_dim)
    length = torch.zeros(batch_size, dtype=torch.long, device=like.device)
    total = like.new_zeros(batch_size, dim)
    return State(store, store.clone(), block, block.clone(), total, length)


def extend(
    q: Float[Tensor, "B H N K"],
    k: Float[Tensor, "B H N K"],
    v: Float[Tensor, "B H N V"],
    state: State,
    *,
    summary: Float[Tensor, "B N D"],
    sort: Sort,
    valid: Bool[Tensor, "B N"] | None = None,
    join: Join = "joint",
    donate: bool = False,
) -> tuple[Float[Tensor, "B H N V"], State]:
    """Causal outputs for the next N tokens, of which the absent come last; `total` is the caller's to advance.

    summary: of the block that begins with each token.
    """
    N, C = q.shape[2], state.block_k.shape[2] // 2
    at = columns(state.length, valid, N, state.k, donate)
    store = put(state.k, k, at, donate), put(state.v, v, at, donate)
    whole = slice((at.seen - 1) // C * C)
    complete = store[0][:, :, whole], store[1][:, :, whole]
    if N == 1:
        y, blocks = _extend_one(q, k, v, state, at.start, complete, summary, sort, join, donate)
    else:
        y, blocks = _extend_chunk(q, k, v, state, at.length, complete, summary, sort, join)
    return y, State(*store, *blocks, state.total, at.length)


def _extend_one(
    q: Float[Tensor, "B H 1 K"],
    k: Float[Tensor, "B H 1 K"],
    v: Float[Tensor, "B H 1 V"],
    state: State,
    start: int | None,
    complete: Tokens,
    summary: Float[Tensor, "B 1 D"],
    sort: Sort,
    join: Join,
    donate: bool,
) -> tuple[Float[Tensor, "B H 1 V"], Blocks]:
    """start: length of every row, if known. Where lengths cannot be read, the blocks are sorted at every step."""
    blocks, C = (state.block_k, state.block_v), state.block_k.shape[2] // 2
    if not is_ours(donate, q, k, v, *blocks):
        blocks = blocks[0].clone(), blocks[1].clone()
    begins, place = state.length % C == 0, C + state.length % C
    if complete[0].shape[2] and not (readable(begins) and not begins.any()):
        found = _sorted(summary, (state.length // C)[:, None], complete, sort, C)
        for block, new in zip(blocks, found, strict=True):
            block[:, :, :C] = torch.where(
                begins[:, None, None, None], new[:, :, 0], block[:, :, :C]
            )
    index = place[:, None, None, None]
    for block, new in zip(blocks, (k, v), strict=True):
        block.scatter_(2, index.expand(new.shape), new.to(block.dtype))
    if start is not None:
        return _attend(q, *blocks, slice(0 if start >= C else C, C + start % C + 1), join), blocks
    column = torch.arange(2 * C, device=q.device)
    first = torch.where(state.length < C, C, 0)
    seen = (column >= first[:, None]) & (column <= place[:, None])
    return _attend(q, *blocks, slice(0, 2 * C), join, seen[:, None, None]), blocks


def _attend(
    q: Float[Tensor, "B H 1 K"],
    k: Float[Tensor, "B H C2 K"],
    v: Float[Tensor, "B H C2 V"],
    there: slice,
    join: Join,
    seen: Bool[Tensor, "B 1 1 C2"] | None = None,
) -> Float[Tensor, "B H 1 V"]:
    """Attention to these columns: sorted ones, then the block's own."""
    C = k.shape[2] // 2
    apart = join == "separate" and there.start < C
    parts = (slice(there.start, C), slice(C, there.stop)) if apart else (there,)
    masks = (Mask(pairwise=None if seen is None else seen[..., part]) for part in parts)
    ys = [
        softmax_attention(q, k[:, :, part], v[:, :, part], mask=mask)
        for part, mask in zip(parts, masks, strict=True)
    ]
    return ys[0] + ys[1] if apart else ys[0]


def _extend_chunk(
    q: Float[Tensor, "B H N K"],
    k: Float[Tensor, "B H N K"],
    v: Float[Tensor, "B H N V"],
    state: State,
    length: Int[Tensor, "B"],
    complete: Tokens,
    summary: Float[Tensor, "B N D"],
    sort: Sort,
    join: Join,
) -> tuple[Float[Tensor, "B H N V"], Blocks]:
    """All blocks that N tokens may touch, the open one first: G of C places, in which the tokens begin where their row is."""
    N, C = q.shape[2], state.block_k.shape[2] // 2
    G = (N + C - 2) // C + 1
    filled, g = (state.length % C)[:, None], torch.arange(G, device=q.device)
    block, begins = (state.length // C)[:, None] + g, (g > 0) | (filled == 0)
    begun = rows_at(summary, (g * C - filled).clamp(0, N - 1))
    found = _sorted(begun, block, complete, sort, C)
    place = (filled + torch.arange(N, device=q.device))[:, None, :, None]

    def grid(z: Tensor, old: Tensor) -> Float[Tensor, "B H G C K"]:
        whole = F.pad(old, (0, 0, 0, (G - 1) * C))
        return whole.scatter(2, place.expand(z.shape), z.to(old.dtype)).unflatten(2, (G, C))

    def sorted_of(new: Tensor, old: Tensor) -> Float[Tensor, "B H G C K"]:
        return torch.where(begins[:, None, :, None, None], new, old[:, :, None, :C])

    olds = state.block_k, state.block_v
    first = sorted_of(found[0], olds[0]), sorted_of(found[1], olds[1])
    own = grid(k, olds[0][:, :, C:]), grid(v, olds[1][:, :, C:])
    queries = grid(q, torch.zeros_like(state.block_k[:, :, C:]))
    causal = torch.ones(C, C, dtype=torch.bool, device=q.device).tril()[None, None]
    shared = (block > 0)[:, :, None, None].expand(-1, -1, 1, C)
    y = beside_sorted(queries, *own, *first, causal, shared, join=join).flatten(2, 3)
    last = ((filled[:, 0] + length - state.length - 1) // C).clamp_min(0)
    block_k, block_v = (
        _picked(torch.cat(pair, dim=3).transpose(1, 2), last)
        for pair in zip(first, own, strict=True)
    )
    return y.gather(2, place.expand(-1, y.shape[1], -1, y.shape[3])), (block_k, block_v)


def _picked(z: Float[Tensor, "B G H C K"], index: Int[Tensor, "B"]) -> Float[Tensor, "B H C K"]:
    return rows_at(z.flatten(2), index[:, None]).view(z.shape[0], *z.shape[2:])


def _sorted(
    summary: Float[Tensor, "B G D"],
    block: Int[Tensor, "B G"],
    complete: Tokens,
    sort: Sort,
    C: int,
) -> tuple[Float[Tensor, "B H G C K"], Float[Tensor, "B H G C V"]]:
    """Keys and values sorted for the blocks with these summaries and numbers, each from the blocks before it."""
    keys, values = complete
    if keys.shape[2] == 0:
        none = keys.new_zeros(*keys.shape[:2], block.shape[1], C, keys.shape[3])
        return none, none
    scores = sort(summary, keys)
    n = scores.shape[3]
    earlier = torch.arange(n, device=block.device) < block[..., None]
    S = masked_softmax(scores.to(wide_type(scores)), earlier[:, None])
    keys, values = (mixed(S, z[:, :, : n * C].unflatten(2, (n, C))) for z in complete)
    return keys, values
