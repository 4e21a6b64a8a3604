"""Softmax over keys that are chosen for each query, one by one or in blocks (arXiv 2502.11089, 2502.13189, 2512.02556).

    y_i = softmax over { j in the chosen blocks of i, j <= last_i } of (q_i . k_j / sqrt(K))  v_j

A choice is made for one tile of queries at a time, so that no scores of [T S] are stored, and without a gradient; the keys of a tile are then copied.
Its sizes are constants: `largest` gives as many blocks to every query, -1 where there are fewer. A program that is exported is one tile of all
queries. The backward adds to all keys once for each tile. Lower precision, and autocast in `native_sparse`, may choose other keys, as scores are rounded.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, Mixed, MixedTile, Positions, Queries, SharedKeys, SharedValues
from regard.functional.rows import in_chunks, masked_softmax, scores, tiled, unrounded, visible_keys

ROOM = 1 << 24
"""Bytes of the keys of an example that are copied at once, for all queries of a tile together."""

NEVER = -1e30
"""Score of a block that was not chosen."""
LastKeys = Int[Tensor, "#b t"]  # of the queries of a tile, or their own places

Index = Callable[[slice], tuple[Tensor, Tensor, Tensor | None]]
"""Queries -> scores of blocks [B c t N], the allowed ones, the forced ones; c divides the heads of keys, or is a multiple of them."""


def selected_attention(
    q: Queries,
    k: SharedKeys,
    v: SharedValues,
    index: Index,
    *,
    count: int,
    last: Positions,
    block_size: int,
    tile: int,
) -> Mixed:
    """Attention to the keys, up to `last`, of the `count` blocks of largest index; a query without any gives zero. G divides H.

    block_size: tokens of a block, C. tile: queries whose keys are copied at once.
    """

    def some(rows: slice, q: Tensor, keys: Tensor, values: Tensor) -> MixedTile:
        with torch.no_grad():
            at = largest(*index(rows), count)
        weights, places = chosen(q, keys, at, last[:, rows])
        return read(weights, values, places)

    return tiled(some, tile, q, *(in_chunks(z, block_size).flatten(3) for z in (k, v)))


def gated_blocks(
    q: Queries,
    gates: Float[Tensor, "B H T 3"],
    k: SharedKeys,
    v: SharedValues,
    block_keys: Float[Tensor, "B G N K"],
    block_values: Float[Tensor, "B G N V"],
    *,
    mask: Mask,
    count: int,
    last: Positions,
    window: int,
    block_size: int,
    tile: int,
) -> Mixed:
    """Gated sum of attention to whole blocks, by their one key and value, to the keys of those that `of_blocks` chooses, and to the last `window` keys; `last`: see `bounds`."""
    T, S, (_, own) = q.shape[2], k.shape[2], bounds(mask, q, k)
    place = torch.arange(S, device=q.device)

    def some(rows, q, gates, k, v, block_keys, block_values, keys, values):
        i = last[:, rows]
        cols = visible_keys(mask, T, S, rows, window)
        whole, at = of_blocks(q, block_keys, count, block_size, i, own[:, rows])
        y_whole = (whole.type_as(v) @ block_values[:, :, None]).flatten(1, 2)
        weights, places = chosen(q, keys, at, i)
        y_chosen = read(weights, values, places)
        i, first = (z[:, None, None, :, None] for z in (i, own[:, rows] - window))
        found = scores(q.unflatten(1, (k.shape[1], -1)), k[:, :, None, cols])
        near = masked_softmax(found, (place[cols] > first) & (place[cols] <= i)).type_as(v)
        y_near = (near @ v[:, :, None, cols]).flatten(1, 2)
        a, b, c = gates.split(1, -1)
        return a * y_whole + b * y_chosen + c * y_near

    blocks = (in_chunks(z, block_size).flatten(3) for z in (k, v))
    return tiled(some, tile, (q, gates), k, v, block_keys, block_values, *blocks)


def divergence(
    q: Queries,
    k: SharedKeys,
    index: Index,
    *,
    count: int,
    last: Positions,
    block_size: int,
    tile: int,
) -> Float[Tensor, "B 1 T 1"]:
    """KL(p || softmax(index)) over the chosen blocks; p: weights of attention to them, of all heads that share a choice, without gradient.

    count, block_size, tile: see `selected_attention`.
    """

    def some(rows: slice, q: Tensor, keys: Tensor) -> Float[Tensor, "B 1 t 1"]:
        found, allowed, forced = index(rows)
        with torch.no_grad():
            at = largest(found, allowed, forced, count)
            weights, _ = chosen(q, keys, at, last[:, rows])
            p = weights.mean(3).unflatten(1, (at.shape[1], -1)).mean(2)
            p = p.unflatten(3, (count, -1)).sum(4)
        found = (
            found.expand(-1, at.shape[1], -1, -1)
            .gather(3, at.clamp_min(0))
            .masked_fill(at < 0, NEVER)
        )
        return (torch.xlogy(p, p) - p * found.log_softmax(3)).sum(3, keepdim=True).mean(1, True)

    return tiled(some, tile, q, in_chunks(k, block_size).flatten(3))


def chosen(
    q: Float[Tensor, "B H t K"],
    keys: Float[Tensor, "B G N CK"],
    at: Int[Tensor, "B c t n"],
    last: Int[Tensor, "b t"],
) -> tuple[Float[Tensor, "B g t r m"], Int[Tensor, "B g t n"]]:
    """Softmax weights of the m = n C keys of these blocks, for the r heads of queries that share them, and the blocks' places among all.

    g: G or c, whichever is more.
    """
    (B, G, N, width), K = keys.shape, q.shape[3]
    g = max(G, at.shape[1])
    at = at.repeat_interleave(g // at.shape[1], 1)
    j = (at[..., None] * (width // K) + torch.arange(width // K, device=at.device)).flatten(3)
    allowed = (j >= 0) & (j <= last[:, None, :, None])
    first = (N * torch.arange(B * G, device=at.device)).view(B, G, 1, 1)
    places = at.clamp_min(0) + first.repeat_interleave(g // G, 1)
    found = keys.flatten(0, 2).index_select(0, places.flatten()).view(*j.shape, K)
    found = scores(q.unflatten(1, (g, -1)).transpose(2, 3), found)
    return masked_softmax(found, allowed[:, :, :, None]), places


def read(
    weights: Float[Tensor, "B g t r m"],
    values: Float[Tensor, "B G N CV"],
    places: Int[Tensor, "B g t n"],
) -> MixedTile:
    """The weighted values of the blocks at these places."""
    found = values.flatten(0, 2).index_select(0, places.flatten())
    found = found.view(*weights.shape[:3], weights.shape[4], -1)
    return (weights.type_as(values) @ found).transpose(2, 3).flatten(1, 2)


# ------------------------------------------------------------------ choices


def largest(
    scores: Float[Tensor, "B #c t N"],
    allowed: Bool[Tensor, "#B #c #t N"],
    forced: Bool[Tensor, "#B #c #t N"] | None,
    count: int,
) -> Int[Tensor, "B c t count"]:
    """Places of the largest scores that are allowed, of forced ones first; -1 where there are fewer. Of equal scores later ones are taken.

    `topk` alone takes any of equal scores, by length and device, and a stream would take others than a forward.
    """
    if forced is not None:
        scores = scores.masked_fill(forced, torch.inf)
    scores = F.pad(scores.masked_fill(~allowed, -torch.inf), (0, count), value=-torch.inf)
    place = torch.arange(scores.shape[3], device=scores.device)
    least = scores.topk(count).values[..., -1:]
    order = torch.where(scores > least, place + place.shape[0], place)
    order = order.masked_fill((scores < least) | (scores == -torch.inf), -1)
    top, index = order.topk(count)
    return index.masked_fill(top < 0, -1)


def bounds(mask: Mask, q: Tensor, k: Tensor) -> tuple[Int[Tensor, "_ T"], Int[Tensor, "_ T"]]:
    """The last key that each query may see, and the query's own place, which no padding moves."""
    T, S = q.shape[2], k.shape[2]
    own = torch.arange(T, device=q.device)[None]
    if mask.causal:
        own = own + (S - T if mask.shift is None else mask.shift[:, None])
    last = own if mask.causal else own * 0 + S - 1
    if mask.valid is not None:
        last = torch.minimum(last, mask.valid.sum(1, keepdim=True) - 1)
    return last, own


def of_blocks(
    q: Float[Tensor, "B H t K"],
    keys: Float[Tensor, "B G N K"],
    count: int,
    block_size: int,
    last: LastKeys,
    own: LastKeys,
) -> tuple[Float[Tensor, "B G r t N"], Int[Tensor, "B G t count"]]:
    """Weights of whole blocks, and the `count` blocks that they choose, after the first, the query's own and the one before."""
    found = scores(q.unflatten(1, (keys.shape[1], -1)), keys[:, :, None])
    block = torch.arange(found.shape[4], device=q.device)
    mine = own[:, None, :, None] // block_size
    ended = block_size * (block + 1) <= last[:, None, None, :, None] + 1
    begun = block_size * block <= last[:, None, :, None]
    weights = masked_softmax(found, ended)
    forced = (block == 0) | (block == mine) | (block == mine - 1)
    return weights, largest(weights.detach().mean(2), begun, forced, count)


def index_of_keys(
    q: Float[Tensor, "B c T K"],
    w: Float[Tensor, "B T c"] | None,
    k: Float[Tensor, "B 1 S K"],
    mask: Mask,
    block_size: int | None,
) -> Index:
    """sum_h w_h relu(q_h . k) / sqrt(K) of each key; with `block_size`, and without w, the largest q_h . k / sqrt(K) of each block."""
    T, S, (last, own) = q.shape[2], k.shape[2], bounds(mask, q, k)
    place = torch.arange(S, device=k.device)

    def index(rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        cols = visible_keys(mask, T, S, rows)
        with unrounded(q):
            found = scores(q[:, :, rows], k[:, :, cols])
        allowed = place[cols] <= last[:, None, rows, None]
        if block_size is not None:
            found = in_chunks(found.masked_fill(~allowed, -torch.inf).mT, block_size, -torch.inf)
            best = found.amax(3).mT
            return best, *marks(best, block_size, last[:, rows], own[:, rows])
        assert w is not None
        found = (w[:, rows].mT[..., None] * found.relu()).sum(1, keepdim=True)
        pairs = mask.pairwise
        return found, allowed if pairs is None else allowed & pairs[:, :, rows, cols], None

    return index


def marks(
    found: Float[Tensor, "B c t N"], block_size: int, last: LastKeys, own: LastKeys
) -> tuple[Bool[Tensor, "#b 1 t N"], Bool[Tensor, "#b 1 t N"]]:
    """The blocks that have a key which each query may see, and the query's own block."""
    block = torch.arange(found.shape[3], device=found.device)
    seen, mine = (z[:, None, :, None] // block_size for z in (last, own))
    return block <= seen, block == mine


def block_means(z: SharedKeys, block_size: int, last: Positions) -> Float[Tensor, "B G N K"]:
    """Means of blocks over the keys up to the last that any query sees; those behind it are zero, or in a block that none sees whole."""
    blocks = in_chunks(z, block_size)
    begin = block_size * torch.arange(blocks.shape[2], device=z.device)
    size = (last[:, -1:] + 1 - begin).clamp(1, block_size)
    return blocks.sum(3) / size[:, None, :, None].type_as(z)
