"""Attention to a sorted mixture of blocks (Sparse Sinkhorn Attention; Tay et al. 2020, arXiv 2002.11296).

    K'_g = sum_u S_gu K_u,   V'_g = sum_u S_gu V_u        whole blocks are mixed; the order inside them is kept
    y of block g = softmax(q [K'_g; K_g]^T / sqrt(K)) [V'_g; V_g]

Blocks of C tokens are an axis: q, k, v [B H N C K]. In a stream, what was sorted for a block is kept until the next begins.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import OPEN, Keys, Mask, Mixed, Queries, Streamed, Values, as_state
from regard.functional.cache import Lengths, NewKeys, NewValues, Valid, columns, put
from regard.functional.rows import cleared, fitted, in_time, masked_softmax, pick, upto, wide_type
from regard.functional.softmax import attend as attend_rows

NONE = -1e4  # a logarithm whose exponential is zero, and whose gradients are finite

Join = Literal["joint", "separate"]
Sorting = Float[Tensor, "B H G N"]  # of N source blocks
BlockKeys = Float[Tensor, "B H G C K"]  # of G blocks of C tokens, or their queries
BlockValues = Float[Tensor, "B H G C V"]  # or what the queries of blocks have read


def balance(
    logits: Float[Tensor, "B H N N"], present: Bool[Tensor, "B N"] | None, *, num_iterations: int
) -> Float[Tensor, "B H N N"]:
    """Sinkhorn's doubly stochastic matrix: rows, then columns, divided by their sums, in logarithms.

    Columns sum to one; rows do, as far as the iterations get. Absent blocks have neither row nor column.
    """
    logits = logits.to(wide_type(logits))
    pairs = None if present is None else (present[:, :, None] & present[:, None, :])[:, None]
    logits = logits if pairs is None else logits.masked_fill(~pairs, NONE)
    for _ in range(num_iterations):
        for dim in (-1, -2):
            logits = logits - logits.logsumexp(dim, keepdim=True)
            logits = logits if pairs is None else logits.masked_fill(~pairs, NONE)
    return logits.exp()


def earlier_blocks(logits: Sorting, block: Int[Tensor, "#B G"] | None = None) -> Sorting:
    """The causal form: each row is a softmax over the blocks before its own, `block` (by default 0, 1, ..). The first has none."""
    source = upto(logits.shape[-1], logits)
    block = source[None] if block is None else block
    logits = logits.to(wide_type(logits))
    return masked_softmax(logits, (source < block[..., None])[:, None])


def sinkhorn_attention(
    q: Queries,
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    sorting: Float[Tensor, "B H N N"],
    block_size: int,
    mask: Mask = OPEN,
    join: Join = "joint",
    sort_cut: int | None = None,
    scale: float | None = None,
) -> Mixed:
    """Attention to the sorted block and the own block, or with `sort_cut` to that many first sorted blocks alone.

    sorting: from `balance`, or from `earlier_blocks` where the mask is causal; N blocks of `block_size` cover T tokens.
    join: one softmax over both blocks, or the sum of two.
    """
    T = q.shape[2]
    C = fitted(block_size, T)
    N = sorting.shape[3]
    valid = q.new_ones(1, T, dtype=torch.bool) if mask.valid is None else mask.valid
    q, k, v = (cleared(z, mask.valid) for z in (q, k, v))
    q, k, v = (F.pad(z, (0, 0, 0, N * C - T)).unflatten(2, (N, C)) for z in (q, k, v))
    valid = F.pad(valid, (0, N * C - T)).unflatten(1, (N, C))  # b N C
    sorted_k, sorted_v = (mixed(sorting[:, :, :sort_cut], z) for z in (k, v))
    shared = valid.any(1)[:, None] & valid.any(2)[:, :, None]  # b N C: places of sorted blocks
    if sort_cut is not None:
        seen = shared[:, :sort_cut].flatten(1)[:, None, None]
        q, sorted_k, sorted_v = (z.flatten(2, 3) for z in (q, sorted_k, sorted_v))
        y = attend_rows(q, sorted_k, sorted_v, seen, scale=scale)
        return y[:, :, :T]
    own = valid[:, :, None]
    if mask.causal:
        place, block = upto(C, q), upto(N, q)
        own = (place <= place[:, None])[None, None]
        shared = (block > 0)[None, :, None].expand(-1, -1, C)
    y = beside_sorted(q, k, v, sorted_k, sorted_v, own, shared[:, :, None], join, scale)
    return in_time(y, T)


def mixed(sorting: Sorting, z: Float[Tensor, "B H N C K"]) -> BlockKeys:
    return (sorting.type_as(z) @ z.flatten(3)).unflatten(3, z.shape[3:])


def beside_sorted(
    q: BlockKeys,
    k: BlockKeys,
    v: BlockValues,
    sorted_k: BlockKeys,
    sorted_v: BlockValues,
    own: Bool[Tensor, "#B #G c C"],
    shared: Bool[Tensor, "#B #G 1 C"],
    join: Join,
    scale: float | None = None,
) -> BlockValues:
    """Queries of a block see its sorted block and the block itself."""
    parts = [(sorted_k, sorted_v, shared), (k, v, own)]
    if join == "joint":
        size = torch.broadcast_shapes(shared.shape[:3], own.shape[:3])
        allowed = torch.cat([z.expand(*size, -1) for z in (shared, own)], 3)
        parts = [(torch.cat([sorted_k, k], 3), torch.cat([sorted_v, v], 3), allowed)]
    H, G = q.shape[1:3]
    q = q.flatten(1, 2)
    y = []
    for keys, values, allowed in parts:
        allowed = allowed[:, None].expand(-1, H, G, -1, -1).flatten(1, 2)
        y.append(attend_rows(q, keys.flatten(1, 2), values.flatten(1, 2), allowed, scale=scale))
    return sum(y[1:], y[0]).unflatten(1, (H, G))


@as_state
class State(Streamed):
    sums = ("total",)
    k: Keys  # by position
    v: Values
    sorted_k: Float[Tensor, "B H C K"]  # for the block that has begun
    sorted_v: Float[Tensor, "B H C V"]
    total: Float[Tensor, "B D"]  # of all tokens
    length: Lengths


Sort = Callable[[Float[Tensor, "b G D"], Float[Tensor, "b H S K"]], Float[Tensor, "b H G N"]]
"""Scores of the first N blocks, whose keys are given, for the blocks whose summaries are given."""


def extend(
    q: NewKeys,
    k: NewKeys,
    v: NewValues,
    state: State,
    *,
    summary: Float[Tensor, "B N D"],
    sort: Sort,
    valid: Valid,
    join: Join,
    donate: bool,
) -> tuple[NewValues, State]:
    """Causal outputs for the next N tokens, of which the absent come last; `total` is the caller's to advance.

    summary: of the block that begins with each token. The tokens touch G blocks, of which the first may have begun.
    """
    N, C = q.shape[2], state.sorted_k.shape[2]
    at = columns(state, valid, N, state.k, donate)
    store = put(state.k, k, at, donate), put(state.v, v, at, donate)
    G = (N + C - 2) // C + 1
    filled, g = (state.length % C)[:, None], upto(G, q)
    block = (state.length // C)[:, None] + g  # B G
    place = upto(C, q)

    first = [z[:, :, None].expand(-1, -1, G, -1, -1) for z in (state.sorted_k, state.sorted_v)]
    n = (at.seen - 1) // C  # blocks that may be complete before one begins
    if n and (at.start is None or at.start % C == 0 or at.start % C + N > C):  # a block begins
        complete = [z[:, :, : n * C] for z in store]
        begun = pick(summary[:, None], (g * C - filled).clamp(0, N - 1))[:, 0]
        S = earlier_blocks(sort(begun, complete[0]), block)
        begins = ((g > 0) | (filled == 0))[:, None, :, None, None]
        new = (mixed(S, z[:, :, : S.shape[3] * C].unflatten(2, (-1, C))) for z in complete)
        first = [torch.where(begins, z, old) for z, old in zip(new, first, strict=True)]

    cells = block[..., None] * C + place  # B G C: positions
    own = [pick(z, cells.clamp_max(at.seen - 1)) for z in store]
    queries = q[:, :, None]
    seen = (place <= filled)[:, None, None]
    if N > 1:
        token = (cells - state.length[:, None, None]).clamp(
            0, N - 1
        )  # copies where a cell has none
        queries = pick(q, token)
        seen = (place <= place[:, None])[None, None]
    shared = (block > 0)[..., None, None].expand(-1, -1, -1, C)
    y = beside_sorted(queries, own[0], own[1], first[0], first[1], seen, shared, join).flatten(2, 3)
    y = y if N == 1 else pick(y, filled + upto(N, q))
    last = ((filled[:, 0] + at.length - state.length - 1) // C).clamp_min(0)  # of the G
    row = upto(q.shape[0], q)
    kept_k, kept_v = (z[:, :, 0] if G == 1 else z[row, :, last] for z in first)
    return y, State(*store, kept_k, kept_v, state.total, at.length)
