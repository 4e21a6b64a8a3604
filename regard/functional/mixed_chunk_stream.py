"""Streams of mixed chunk attention (see `functional.mixed_chunk`): two sums, and the chunk that is being filled.

Rows may stand at different places of their open chunk. New tokens are cut into pieces of c <= C, which are an axis: a piece begins in one chunk and
ends in it or in the next, so it needs the C + c keys from the start of the first, and the sums before both.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Streamed, as_state
from regard.functional.cache import Lengths, NewValues, Valid, advance, is_ours, same_in_all
from regard.functional.mixed_chunk import Sums
from regard.functional.rows import cleared, in_chunks, in_time, pick, upto, wide_type, widened


@as_state
class State(Streamed):
    sums = ("M", "P", "k", "v")
    M: Float[Tensor, "B H K V"]  # sum over finished chunks
    P: Float[Tensor, "B H K V"]  # sum over the chunk that is being filled
    k: Float[Tensor, "B H C K2"]  # near keys of that chunk; length % C of the rows are filled
    v: Float[Tensor, "B H C V"]
    length: Lengths


def initial_state(
    like: Tensor, length: Tensor, num_heads: int, chunk_size: int, near: int, K: int, V: int
) -> State:
    """The state before the first token, with `length` of zeros; `near`: width of the keys inside chunks."""
    (like,) = widened(like)
    heads = len(length), num_heads
    M = like.new_zeros(*heads, K, V)
    k = like.new_zeros(*heads, chunk_size, near)
    return State(M, torch.zeros_like(M), k, like.new_zeros(*heads, chunk_size, V), length)


def extend(
    sums: Sums, v: NewValues, state: State, *, valid: Valid, donate: bool
) -> tuple[NewValues, State]:
    """Causal outputs for the next N tokens, valid ones first in each row, and the state after them."""
    C, (B, _, N, _) = state.k.shape[2], v.shape
    same = same_in_all(state.length) if N == 1 and valid is None else None
    if same is not None:
        return _extend_one(sums, v, state, same, donate)
    c = min(C, N)
    filled, length = state.length % C, advance(state.length, valid, N)
    place = filled[:, None] + torch.arange(
        c, device=v.device
    )  # B c: from the start of the first chunk
    later = (place >= C)[:, None, None, :, None]  # in the second
    begun = state.length // C
    closed, y = length // C - begun, None

    if sums.near is not None:
        q, k = in_chunks(sums.near[0], c), torch.cat([state.k, sums.near[1]], 2)
        values = torch.cat([state.v, v], 2)

        def stored(column: Int[Tensor, "b *n"]) -> Int[Tensor, "B *n"]:
            """Places of the tokens at these columns, which count from the start of the open chunk; new ones are behind it."""
            old = filled.view(-1, *[1] * (column.ndim - 1))
            return torch.where(column < old, column, column - old + C).clamp_max(C + N - 1)

        column = upto(C + c, v)
        at = stored(c * upto(q.shape[2], v)[None, :, None] + column)
        ahead = column - place[:, None, None, :, None]
        allowed = (ahead <= 0) & (later == (column >= C))
        y = in_time(sums.inside(q, pick(k, at), pick(values, at), allowed, ahead), N)
        at = stored(closed[:, None] * C + column[:C])
        state = replace(state, k=pick(k, at), v=pick(values, at))

    if sums.far is not None:
        q, k = sums.far
        q, k, x = (in_chunks(z, c) for z in (q, cleared(k, valid), v))
        first, then = ((k * part).mT @ x for part in (~later, later))
        gains = F.pad(first, (0, 0, 0, 0, 0, 1)) + F.pad(then, (0, 0, 0, 0, 1, 0))
        gains = torch.cat([gains[:, :, :1] + state.P[:, :, None], gains[:, :, 1:]], 2)
        M = torch.cat([state.M[:, :, None], gains[:, :, :-1]], 2).cumsum(2)  # before each chunk
        chunk = begun[:, None] + upto(M.shape[2], v)
        shared = M * sums.share(chunk * C, M.dtype)[:, None, :, None, None]
        far = in_time(torch.where(later, q @ shared[:, :, 1:], q @ shared[:, :, :-1]), N)
        y = far if y is None else y + far
        row = upto(B, v)
        state = replace(state, M=M[row, :, closed], P=gains[row, :, closed])

    assert y is not None
    return y, replace(state, length=length)


def _extend_one(
    sums: Sums, v: Float[Tensor, "B H 1 V"], state: State, length: int, donate: bool
) -> tuple[Tensor, State]:
    """One token per row, all rows at the same place of their chunk: one place of the store is written."""
    C = state.k.shape[2]
    filled = length % C
    M = state.M
    P = state.P
    near_k = state.k
    near_v = state.v
    new = [z for pair in (sums.near, sums.far) if pair is not None for z in pair]
    if not is_ours(donate, P, near_k, near_v, *new, v):
        P = P.clone()
        near_k = near_k.clone()
        near_v = near_v.clone()
    y = torch.zeros_like(v)
    if sums.near is not None:
        q, k = sums.near
        near_k[:, :, filled : filled + 1], near_v[:, :, filled : filled + 1] = k, v
        seen_k, seen_v = (z[:, :, None, : filled + 1] for z in (near_k, near_v))
        ahead = torch.arange(-filled, 1, device=v.device)[None]
        y = sums.inside(q[:, :, None], seen_k, seen_v, None, ahead)[:, :, 0]
    if sums.far is not None:
        q, k = sums.far
        before = torch.tensor(length - filled, device=v.device)
        y = y + (q * sums.share(before, wide_type(v))) @ M
        P = P.addcmul_(k.mT, v)
        if filled == C - 1:
            M, P = M + P, torch.zeros_like(P)
    return y, State(M, P, near_k, near_v, state.length + 1)
