"""Mixed chunk attention (FLASH, Hua et al. 2022, arXiv 2202.10447): exact inside chunks, summed between them.

    y_i = sum_{j in the chunk of i} w_ij v_j  +  a q_i M,   M = sum_j k_j v_j^T

Chunks of C tokens start at the first token. M is the sum over all tokens, or, where causal, over the chunks before the
query's own. `attend` is any attention kernel, called with the chunks as examples.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.errors import OptionError
from regard.core.mask import OPEN, Mask
from regard.core.request import compaction, permute
from regard.core.states import Streamed, as_state
from regard.functional.choice import Impl
from regard.functional.shared.cache import is_ours, same_in_all
from regard.functional.shared.implementation import cut
from regard.functional.shared.numerics import wide_type

Attend = Callable[
    [Tensor, Tensor, Tensor, Mask, Tensor, Tensor], Tensor
]  # q, k, v, mask, positions of q, of k


@as_state
class State(Streamed):
    M: Float[Tensor, "B H K V"]  # sum over finished chunks
    P: Float[Tensor, "B H K V"]  # sum over the chunk that is being filled
    k: Float[
        Tensor, "B H C K2"
    ]  # what `attend` needs of that chunk; length % C of the rows are filled
    v: Float[Tensor, "B H C V"]
    length: Int[Tensor, "B"]


LinNorm = Literal["count", "chunk", "n"]


@dataclass(frozen=True)
class Share:
    """The factor a of a sum over n tokens: 1 / n, or one over a constant."""

    constant: int | None = None

    def of(self, n: int) -> float:
        return 1 / (max(n, 1) if self.constant is None else self.constant)

    def __call__(self, n: Int[Tensor, "*b"], dtype: torch.dtype) -> Float[Tensor, "*b"]:
        if self.constant is None:
            return 1 / n.clamp_min(1).to(dtype)
        return torch.full(n.shape, 1 / self.constant, dtype=dtype, device=n.device)


def shares(who: str, lin_norm: LinNorm, chunk_size: int, max_len: int | None) -> dict[bool, Share]:
    """The factor a, by `causal`: one over the tokens of the sum, over the chunk (causal only), or over max_len."""

    if lin_norm == "count":
        return {False: Share(), True: Share()}
    if lin_norm == "chunk":
        return {False: Share(), True: Share(chunk_size)}
    if lin_norm != "n":
        raise OptionError(f"{who}: lin_norm must be 'count', 'chunk' or 'n', got {lin_norm!r}")
    if max_len is None:
        raise OptionError(f"{who}: lin_norm='n' needs max_len: pass max_len=")
    return {False: Share(max_len), True: Share(max_len)}


def initial_state(
    like: Tensor, batch_size: int, num_heads: int, chunk_size: int, near: int, K: int, V: int
) -> State:
    """The state before the first token; `near`: width of the keys inside chunks."""
    heads = (batch_size, num_heads)
    M = like.new_zeros(*heads, K, V)
    length = torch.zeros(batch_size, dtype=torch.long, device=like.device)
    k, v = like.new_zeros(*heads, chunk_size, near), like.new_zeros(*heads, chunk_size, V)
    return State(M, torch.zeros_like(M), k, v, length)


def within_chunks(
    attend: Attend,
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    chunk_size: int,
    mask: Mask,
) -> Float[Tensor, "B H T V"]:
    """Attention of every token to its own chunk."""
    B, _, T, _ = v.shape
    chunk_size = min(chunk_size, T)
    q, k, v = (
        rearrange(_padded(a, chunk_size), "b h (n c) k -> (b n) h c k", c=chunk_size)
        for a in (q, k, v)
    )
    valid = mask.valid
    if valid is None and T % chunk_size:
        valid = torch.ones(B, T, dtype=torch.bool, device=v.device)
    if valid is not None:
        valid = rearrange(F.pad(valid, (0, -T % chunk_size)), "b (n c) -> (b n) c", c=chunk_size)
    local = torch.arange(chunk_size, device=v.device)[None]
    y = attend(q, k, v, Mask(causal=mask.causal, valid=valid, compact=True), local, local)
    return rearrange(y, "(b n) h c v -> b h (n c) v", b=B)[:, :, :T]


def between_chunks(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    M: Float[Tensor, "B H K V"] | None,
    *,
    chunk_size: int,
    share: Share,
    start: int,
) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H K V"]]:
    """a q_i M of tokens from `start` on, in causal order; M: the sum before them, and, returned, after them."""
    T = v.shape[2]
    q, k, v = (_padded(a, chunk_size).unflatten(2, (-1, chunk_size)) for a in (q, k, v))
    sums = (k.mT @ v).cumsum(2, dtype=wide_type(v))
    M = torch.zeros_like(sums[:, :, 0]) if M is None else M
    sums = torch.cat([M[:, :, None], sums + M[:, :, None]], dim=2)
    first = start + torch.arange(q.shape[2], device=v.device) * chunk_size
    y = q @ (sums[:, :, :-1] * share(first, sums.dtype)[:, None, None]).to(v.dtype)
    return y.flatten(2, 3)[:, :, :T], sums[:, :, -1]


def mixed_chunks(
    attend: Attend | None,
    turn: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]],
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    chunk_size: int,
    mask: Mask,
    share: Share | None,
    impl: Impl,
) -> Float[Tensor, "B H T V"]:
    """Both sums, some chunks at a time: what lies between them never has the length of all tokens.

    turn: gives q and k, from this token on, their positions. attend, share: None as in `extend`.
    """
    T, M, near, far = v.shape[2], None, [], []
    how = cut("mixed_chunk", impl, q)
    token = 2 * q[:, :, 0].numel() * q.element_size()  # bytes of q and k, turned
    held = how.room // token if how.tiled and token else T
    size = max(1, held // chunk_size) * chunk_size
    pieces = [z.split(size, dim=2) for z in (q, k, v)]
    for start, q, k, v in zip(range(0, max(T, 1), size), *pieces, strict=True):
        valid = None if mask.valid is None else mask.valid[:, start : start + size]
        q, k = turn(q, k, start)
        if attend is not None:
            here = replace(mask, valid=valid)
            near.append(within_chunks(attend, q, k, v, chunk_size=chunk_size, mask=here))
        if share is None:
            continue
        k = k if valid is None else k * valid[:, None, :, None]
        if mask.causal:
            q, M = between_chunks(q, k, v, M, chunk_size=chunk_size, share=share, start=start)
        else:
            product = (k.mT @ v).to(wide_type(v))
            M = product if M is None else M + product
        far.append(q)
    if M is not None and share is not None and not mask.causal:
        M = M * share(token_count(mask, T, v.device), M.dtype)[:, None, :, None]
        far = [q @ M.to(v.dtype) for q in far]
    both = [b.add_(a) for a, b in zip(near, far, strict=False)] or near or far
    tokens_first = torch.cat([y.transpose(1, 2) for y in both], dim=1)  # as heads are merged
    return tokens_first.transpose(1, 2)


def between_chunks_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    chunk_size: int,
    mask: Mask,
    share: Share,
) -> Float[Tensor, "B H T T"]:
    """The weights that `between_chunks` amounts to; they have signs."""
    T = q.shape[2]
    scores = q @ k.transpose(-1, -2)
    if mask.valid is not None:
        scores = scores * mask.valid[:, None, None, :]
    if not mask.causal:
        return scores * share(token_count(mask, T, q.device), q.dtype)[:, None, :, None]
    chunk = torch.arange(T, device=q.device) // chunk_size
    return scores * (chunk[None, :] < chunk[:, None]) * share(chunk * chunk_size, q.dtype)[:, None]


def same_chunk(T: int, chunk_size: int, device: torch.device) -> Bool[Tensor, "1 1 T T"]:
    chunk = torch.arange(T, device=device) // chunk_size
    return (chunk[:, None] == chunk[None, :])[None, None]


def token_count(mask: Mask, T: int, device: torch.device) -> Int[Tensor, "b 1"]:
    if mask.valid is None:
        return torch.full((1, 1), T, device=device)
    return mask.valid.sum(1, keepdim=True)


def seen_in_chunk(mask: Mask, T: int, chunk_size: int, device: torch.device) -> Int[Tensor, "b T"]:
    """The number of tokens in each token's chunk, at least 1; order plays no part."""
    valid = torch.ones(1, T, device=device, dtype=torch.bool) if mask.valid is None else mask.valid
    inside = F.pad(valid, (0, -T % chunk_size)).unflatten(1, (-1, chunk_size)).sum(-1)
    return inside.clamp_min(1).repeat_interleave(chunk_size, 1)[:, :T]


def extend(
    attend: Attend | None,
    state: State,
    q: tuple[Float[Tensor, "B H N K2"], Float[Tensor, "B H N K"]],
    k: tuple[Float[Tensor, "B H N K2"], Float[Tensor, "B H N K"]],
    v: Float[Tensor, "B H N V"],
    *,
    valid: Bool[Tensor, "B N"] | None,
    share: Share | None,
    donate: bool = False,
) -> tuple[Float[Tensor, "B H N V"], State]:
    """The causal form for the next N tokens. q and k: a pair for `attend` and one for the sums.

    attend=None: nothing is mixed inside chunks. share=None: nothing between them.
    """
    C = state.k.shape[2]
    length = same_in_all(state.length) if v.shape[2] == 1 and valid is None else None
    if length is not None:
        return _extend_one(attend, state, q, k, v, share, length, donate)
    if valid is None:
        valid = torch.ones(v.shape[0], v.shape[2], dtype=torch.bool, device=v.device)
    parts = []
    for start in range(0, v.shape[2], C):  # C tokens close one chunk at most
        piece = slice(start, start + C)
        y, state = _extend_piece(
            attend,
            state,
            tuple(a[:, :, piece] for a in q),
            tuple(a[:, :, piece] for a in k),
            v[:, :, piece],
            valid[:, piece],
            share,
        )
        parts.append(y)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2), state


def _extend_one(
    attend, state: State, q, k, v, share, length: int, donate: bool
) -> tuple[Tensor, State]:
    """One token per row, all rows at the same place of their chunk: no mask, and one place of the store is written."""
    C = state.k.shape[2]
    filled, M, stores = length % C, state.M, [state.P, state.k, state.v]
    if not is_ours(donate, *stores, *k, v):
        stores = [store.clone() for store in stores]
    P, near_k, near_v = stores
    near_k[:, :, filled : filled + 1], near_v[:, :, filled : filled + 1] = k[0], v
    y = None
    if share is not None and length >= C:
        y = (q[1] * share.of(length - filled)) @ M
    if attend is not None:
        seen = near_k[:, :, : filled + 1], near_v[:, :, : filled + 1]
        slot = torch.arange(filled + 1, device=v.device)[None]
        near = attend(q[0], *seen, OPEN, slot[:, filled:], slot)
        y = near if y is None else y.add_(near)
    P.addcmul_(k[1].mT, v)
    if filled == C - 1:
        M, P = M + P, torch.zeros_like(P)
    y = torch.zeros_like(v) if y is None else y
    return y, State(M, P, near_k, near_v, state.length + 1)


def _extend_piece(attend, state: State, q, k, v, valid, share) -> tuple[Tensor, State]:
    C = state.k.shape[2]
    filled, before = state.length % C, state.length // C * C
    old = torch.arange(C, device=v.device) < filled[:, None]
    order = compaction(torch.cat([old, valid], dim=1))
    place = order.target[:, C:]  # of the new tokens, counted from the start of the open chunk
    second = place >= C
    first_k = k[1] * (valid & ~second)[:, None, :, None]
    second_k = k[1] * (valid & second)[:, None, :, None]
    P = state.P + first_k.transpose(-1, -2) @ v
    closed = state.M + P
    y = torch.zeros_like(v)
    if share is not None:
        sums, counts = (state.M, closed), (before, before + C)
        first, then = (
            (q[1] @ M) * share(n, v.dtype)[:, None, None, None]
            for M, n in zip(sums, counts, strict=True)
        )
        y = torch.where(second[:, None, :, None], then, first)
    keys = permute(torch.cat([state.k, k[0]], dim=2), order.source, dim=2)
    values = permute(torch.cat([state.v, v], dim=2), order.source, dim=2)
    slot = torch.arange(keys.shape[2], device=v.device)[None]
    if attend is not None:
        same = (slot >= C)[:, None, :] == second[:, :, None]
        allowed = same & (slot[:, None, :] <= place[:, :, None]) & order.valid[:, None, :]
        y = y + attend(q[0], keys, values, Mask(pairwise=allowed[:, None]), place, slot)
    length = state.length + valid.sum(1)
    closes = (length // C * C > before)[:, None, None, None]

    def open_chunk(a: Tensor) -> Tensor:
        following = F.pad(a[:, :, C:], (0, 0, 0, 2 * C - a.shape[2]))
        return torch.where(closes, following, a[:, :, :C])

    return y, State(
        M=torch.where(closes, closed, state.M),
        P=torch.where(closes, second_k.transpose(-1, -2) @ v, P),
        k=open_chunk(keys),
        v=open_chunk(values),
        length=length,
    )


def _padded(a: Float[Tensor, "B H T K"], chunk_size: int) -> Float[Tensor, "B H T2 K"]:
    missing = -a.shape[2] % chunk_size
    return F.pad(a, (0, 0, 0, missing)) if missing else a  # a padding of nothing is a copy
