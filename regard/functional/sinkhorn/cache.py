"""Streaming of Sinkhorn attention: what is sorted for a block stays beside the block's own keys until the next begins."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.functional.shared.cache import advance, is_ours, place
from regard.functional.shared.numerics import wide_type
from regard.functional.sinkhorn.attention import Join, mixed
from regard.functional.softmax.dense import softmax_attention

Sort = Callable[[Float[Tensor, "b 1 D"], Float[Tensor, "b H S K"]], Float[Tensor, "b H 1 N"]]
"""Scores of the N earlier blocks, whose keys are given, for the block whose summary is given."""


class State(NamedTuple):
    k: Float[Tensor, "B H S K"]  # by position, in whole blocks
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
    store_k = _written(state.k, k, state.length, C, donate)
    store_v = _written(state.v, v, state.length, C, donate)
    ours = is_ours(donate, q, k, v, state.block_k, state.block_v)
    ys, blocks_k, blocks_v = [], [], []
    for rows, at, count in _alike(state.length, valid, N):
        blocks = state.block_k[rows], state.block_v[rows]
        earlier, new = [z[rows] for z in (store_k, store_v)], [z[rows] for z in (q, k, v)]
        parts = []
        for tokens, first in _by_block(at, count, C):
            blocks = blocks if ours else (blocks[0].clone(), blocks[1].clone())
            if first % C == 0 and first > 0:
                begun = summary[rows, tokens][:, :1]
                scores = sort(begun, earlier[0][:, :, :first])
                S = scores.to(wide_type(scores)).softmax(-1)
                for block, store in zip(blocks, earlier, strict=True):
                    block[:, :, :C] = mixed(S, store[:, :, :first].unflatten(2, (-1, C)))[:, :, 0]
            q_new, *keys_values = (z[:, :, tokens] for z in new)
            end = C + first % C + q_new.shape[2]
            for block, z in zip(blocks, keys_values, strict=True):
                block[:, :, end - z.shape[2] : end] = z
            parts.append(_attend(q_new, *blocks, end, first >= C, join))
        y = torch.cat(parts, dim=2) if parts else v[rows, :, :0]
        ys.append(F.pad(y, (0, 0, 0, N - count)) if count < N else y)
        blocks_k.append(blocks[0])
        blocks_v.append(blocks[1])
    if len(ys) > 1:
        ys, blocks_k, blocks_v = ([torch.cat(z)] for z in (ys, blocks_k, blocks_v))
    length = advance(state.length, valid, N)
    return ys[0], State(store_k, store_v, blocks_k[0], blocks_v[0], state.total, length)


def _alike(
    length: Int[Tensor, "B"], valid: Bool[Tensor, "B N"] | None, N: int
) -> Iterator[tuple[slice, int, int]]:
    """Neighbouring rows with the same number of tokens before and now, and the two numbers."""
    before = length.tolist()
    now = [N] * len(before) if valid is None else valid.sum(1).tolist()
    start = 0
    for (at, count), rows in groupby(zip(before, now, strict=True)):
        stop = start + len(list(rows))
        yield slice(start, stop), at, count
        start = stop


def _by_block(at: int, count: int, C: int) -> Iterator[tuple[slice, int]]:
    """The next `count` tokens in parts that lie in one block, each with its first position."""
    done = 0
    while done < count:
        stop = min(done + C - (at + done) % C, count)
        yield slice(done, stop), at + done
        done = stop


def _attend(
    q: Float[Tensor, "b H n K"],
    k: Float[Tensor, "b H C2 K"],
    v: Float[Tensor, "b H C2 V"],
    end: int,
    has_sorted: bool,
    join: Join,
) -> Float[Tensor, "b H n V"]:
    """The queries are those of the last n keys before `end`."""
    C, mask = k.shape[2] // 2, Mask(causal=q.shape[2] > 1)
    if has_sorted and join == "joint":
        return softmax_attention(q, k[:, :, :end], v[:, :, :end], mask=mask)
    y = softmax_attention(q, k[:, :, C:end], v[:, :, C:end], mask=mask)
    return y + softmax_attention(q, k[:, :, :C], v[:, :, :C]) if has_sorted else y


def _written(store: Tensor, new: Tensor, length: Tensor, block_size: int, donate: bool) -> Tensor:
    """The store with new tokens at their positions. Absent tokens come last and write where later ones will."""
    position = place(length, None, new.shape[2])
    needed = -(-(int(position.max()) + 1) // block_size) * block_size
    ours = is_ours(donate, store, new)
    if needed > store.shape[2]:
        store = F.pad(store, (0, 0, 0, max(needed, 2 * store.shape[2]) - store.shape[2]))
        ours = is_ours(True, store, new)
    index, new = position[:, None, :, None].expand_as(new), new.to(store.dtype)
    return store.scatter_(2, index, new) if ours else store.scatter(2, index, new)
