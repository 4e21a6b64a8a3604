"""Softmax over keys that are chosen for each query, one by one or in blocks (arXiv 2502.11089, 2502.13189, 2512.02556).

    y_i = softmax over { j in the chosen blocks of i, j <= last_i } of (scale q_i . k_j)  v_j

A choice is made for one tile of queries at a time, so that no scores of [T S] are stored, and without a gradient; the keys of a tile are then copied.
Its sizes are constants: `largest` gives as many blocks to every query, -1 where there are fewer. A program that is exported is one tile of all
queries. The backward adds to all keys once for each tile. Lower precision and autocast may choose other keys, as scores are rounded.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.functional.mixed_chunk import in_chunks
from regard.functional.rows import (
    TILE,
    Impl,
    masked_softmax,
    scores,
    sizes_of,
    take_each,
    tiled,
)

PAIRS = 1 << 15
"""Keys of a head that are copied at once, for all queries of a tile together."""

NEVER = -1e30
"""Score of a block that was not chosen."""

Choice = Callable[[slice], Int[Tensor, "B c t n"]]
"""Queries -> the blocks of keys that they read, -1: none; c divides the heads of keys."""


def selected_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    choose: Choice,
    *,
    count: int,
    last: Int[Tensor, "b T"],
    block_size: int = 1,
    pairwise: Bool[Tensor, "b h T S"] | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Attention to the keys of `count` blocks that `choose` names, up to `last`; a query without any gives zero. G divides H."""
    keys, values = in_chunks(k, block_size).flatten(3), in_chunks(v, block_size).flatten(3)

    def some(rows: slice, q: Tensor, keys: Tensor, values: Tensor) -> Float[Tensor, "B H t V"]:
        at = chosen(choose, rows, keys.shape[1])
        weights = weights_of(q, keys, at, last[:, rows], pairwise, rows)
        y = weights.to(v.dtype) @ copied(values, at, v.shape[3])
        return y.transpose(2, 3).flatten(1, 2)

    return tiled(some, tile_size(count * block_size, impl), q, keys, values)


def chosen(choose: Choice, rows: slice, groups: int) -> Int[Tensor, "B G t n"]:
    """The choice, repeated for as many heads of keys."""
    with torch.no_grad():
        at = choose(rows)
    return at.repeat_interleave(groups // at.shape[1], 1)


def weights_of(
    q: Float[Tensor, "B H t K"],
    keys: Float[Tensor, "B G N CK"],
    at: Int[Tensor, "B G t n"],
    last: Int[Tensor, "b t"],
    pairwise: Bool[Tensor, "b h T S"] | None,
    rows: slice,
) -> Float[Tensor, "B G t r m"]:
    """Softmax weights of the m = n C keys of blocks, for the r queries' heads that share them."""
    C = keys.shape[3] // q.shape[3]
    j = (at[..., None] * C + torch.arange(C, device=at.device)).flatten(3)
    allowed = ((j >= 0) & (j <= last[:, None, :, None]))[:, :, :, None]
    of = q.unflatten(1, (at.shape[1], -1)).transpose(2, 3)
    if pairwise is not None:
        alike = (1, 1) if pairwise.shape[1] == 1 else (at.shape[1], -1)
        pairs = pairwise[:, :, rows].unflatten(1, alike).transpose(2, 3)
        pairs = pairs.expand(*j.shape[:3], -1, -1)  # B G t r S
        key = j.clamp(0, pairs.shape[4] - 1)[:, :, :, None]
        allowed = allowed & pairs.gather(4, key.expand(-1, -1, -1, pairs.shape[3], -1))
    return masked_softmax(scores(of, copied(keys, at, q.shape[3])), allowed)


def copied(
    blocks: Float[Tensor, "B G N CK"], at: Int[Tensor, "B G t n"], width: int
) -> Float[Tensor, "B G t m K"]:
    """Every key, of so many channels, of these blocks."""
    return take_each(blocks, at.clamp_min(0)).unflatten(4, (-1, width)).flatten(3, 4)


def tile_size(keys: int, impl: Impl) -> int:
    """Queries of a tile that each read so many keys."""
    return sizes_of(impl, tile=min(TILE, max(PAIRS // keys, 16)))["tile"]


# ------------------------------------------------------------------ choices


def largest(
    scores: Float[Tensor, "B c t N"],
    count: int,
    allowed: Bool[Tensor, "#B #c #t N"],
    forced: Bool[Tensor, "#B #c #t N"] | None = None,
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


def bounds(
    mask: Mask, T: int, S: int, device: torch.device
) -> tuple[Int[Tensor, "b T"], Int[Tensor, "b T"]]:
    """The last key that each query may see, and the query's own place, which no padding moves."""
    own = torch.arange(T, device=device)[None]
    own = mask.last_key(T, S, device) if mask.causal else own
    last = own if mask.causal else torch.full_like(own, 1) * (S - 1)
    if mask.valid is not None:
        last = torch.minimum(last, mask.valid.sum(1, keepdim=True) - 1)
    return last, own


def block_means(
    z: Float[Tensor, "B G S K"], block_size: int, valid: Bool[Tensor, "B S"] | None = None
) -> Float[Tensor, "B G N K"]:
    """Means of blocks over valid tokens, which come first; absent ones are zero."""
    blocks = in_chunks(z, block_size)
    if valid is None:
        length = torch.full((1,), 1, device=z.device) * z.shape[2]
    else:
        length = valid.sum(1)
    begin = block_size * torch.arange(blocks.shape[2], device=z.device)
    size = (length[:, None] - begin).clamp(1, block_size)
    return blocks.sum(3) / size[:, None, :, None].to(z.dtype)


# ------------------------------------------------------------------ what a choice learns from

Scored = tuple[Tensor, Tensor, Tensor | None]
"""What `largest` takes: scores of blocks [B c t N], the allowed ones, the forced ones."""


def divergence(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    index: Callable[[slice], Scored],
    *,
    count: int,
    last: Int[Tensor, "b T"],
    block_size: int = 1,
    pairwise: Bool[Tensor, "b h T S"] | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B 1 T 1"]:
    """KL(p || softmax(scores)) over the chosen blocks; p: weights of attention to them, of all heads that share a choice, without gradient."""
    keys = in_chunks(k, block_size).flatten(3)

    def some(rows: slice, q: Tensor, keys: Tensor) -> Float[Tensor, "B 1 t 1"]:
        found, allowed, forced = index(rows)
        own = largest(found.detach(), count, allowed, forced)
        with torch.no_grad():
            at = chosen(lambda _: own, rows, keys.shape[1])
            weights = weights_of(q, keys, at, last[:, rows], pairwise, rows)
            p = weights.unflatten(4, (count, -1)).sum(5).unflatten(1, (own.shape[1], -1))
            p = p.mean((2, 4))
        found = found.gather(3, own.clamp_min(0)).masked_fill(own < 0, NEVER)
        return (torch.xlogy(p, p) - p * found.log_softmax(-1)).sum(3, keepdim=True).mean(1, True)

    return tiled(some, tile_size(count * block_size, impl), q, keys)
