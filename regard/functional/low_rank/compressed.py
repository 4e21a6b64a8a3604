"""Softmax attention to slots, each made of a few neighbouring keys (memory-compressed attention, arXiv 1801.10198).

Slot c is made of the tokens c s .. c s + s - 1, counted from the first token, whatever the length. Causal: a query sees
a slot that is complete at its own position, and an optional first slot that all see.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.implementation import cut
from regard.functional.softmax.dense import softmax_attention
from regard.functional.sparse.tiles import HeadPlan, Tile, TileBatch, TileMask, tile_attention

QUERY_BLOCK = 512  # queries whose mask is held at once
TILE = 256  # queries of a tile on a CPU: a head's weights, and their gradients, stay near

Compress = Callable[[Tensor], Tensor]  # [B H (n s) K] -> [B H n K], s the factor


class First(NamedTuple):
    """A slot that every query sees."""

    k: Float[Tensor, "B H 1 K"]
    v: Float[Tensor, "B H 1 V"]
    late: bool  # the others come a token after their last: the first slot has shown their first


def compressed_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    factor: int,
    compress_k: Compress,
    compress_v: Compress,
    first: First | None = None,
    mask: Mask = OPEN,
) -> Float[Tensor, "B H T V"]:
    """softmax(q k'^T / sqrt(K)) v' over slots of `factor` keys; `mask.valid`, if any, has valid keys first.

    Bidirectional: the last slot is completed with zeros, and takes part if one of its tokens does; `first` does not.
    Causal: an incomplete slot does not exist.
    """
    T, S = q.shape[2], k.shape[2]
    if not mask.causal:
        taken = mask.valid
        if taken is not None:
            k, v = (torch.where(taken[:, None, :, None], z, z.new_zeros(())) for z in (k, v))
            taken = F.pad(taken, (0, -S % factor)).unflatten(1, (-1, factor)).any(-1)
        k, v = (_filled(z, factor) for z in (k, v))
        return softmax_attention(q, compress_k(k), compress_v(v), mask=Mask(valid=taken))
    last = mask.last_key(T, S, q.device)
    offset = S - T if mask.shift is None else None
    k, v = complete(k, factor, compress_k), complete(v, factor, compress_v)
    if first is None:
        return slot_attention(q, k, v, last, factor=factor, offset=offset)
    k, v = torch.cat([first.k, k], dim=2), torch.cat([first.v, v], dim=2)
    return slot_attention(
        q, k, v, last, factor=factor, has_first=True, late=first.late, offset=offset
    )


def complete(
    z: Float[Tensor, "B H S K"], factor: int, compress: Compress
) -> Float[Tensor, "B H C K"]:
    """The slots of all complete groups."""
    C = z.shape[2] // factor
    # The last group is dropped afterwards: a slice of z has a gradient full of zeros.
    return compress(_filled(z, factor))[:, :, :C] if C else z[:, :, :0]


def _filled(z: Float[Tensor, "B H S K"], factor: int) -> Float[Tensor, "B H S2 K"]:
    """The last group completed with zeros, in one copy: `pad` writes zeros everywhere first."""
    B, H, S, K = z.shape
    return torch.cat([z, z.new_zeros(B, H, -S % factor, K)], dim=2) if S % factor else z


def slot_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H C K"],
    v: Float[Tensor, "B H C V"],
    last: Int[Tensor, "b T"],
    *,
    factor: int,
    has_first: bool = False,
    late: bool = False,
    offset: int | None = None,
) -> Float[Tensor, "B H T V"]:
    """Queries see the slots complete at their position `last` (below 0: nothing, not even the first slot).

    has_first: k and v begin with a slot that all see; late: see `First`. offset: says that last[:, i] is i + offset, so that slots beyond a block of queries need not be looked at.
    """
    T, lead = q.shape[2], int(has_first)
    if k.shape[2] == 0:
        return q.new_zeros(*q.shape[:3], v.shape[3])

    def seen(rows: range) -> int:
        """Slots that any of these queries may see."""
        if offset is None:
            return k.shape[2]
        return min(max(lead + (rows.stop + offset - late) // factor, 1), k.shape[2])

    def allowed(rows: range) -> Bool[Tensor, "b 1 t s"]:
        at = last[:, rows.start : rows.stop]
        count = torch.where(at < 0, 0, lead + (at + 1 - int(late)) // factor)
        return torch.arange(seen(rows), device=q.device) < count[:, None, :, None]

    how = cut("compressed", "auto", q)
    if how.tiled and T > QUERY_BLOCK:
        batches = [
            TileBatch(Tile(rows, range(seen(rows))), partial(_tile_mask, allowed, rows))
            for rows in _blocks(T, TILE)
        ]
        plan = [HeadPlan(slice(0, q.shape[1], 1), batches, whole=True)]
        k, v = k.to(q.dtype), v.to(q.dtype)  # autocast leaves learned slots as they are
        return tile_attention(q, k, v, plan=plan, back=lambda: plan, cut=how)
    parts = []
    for rows in _blocks(T, QUERY_BLOCK):
        here, mask = slice(0, seen(rows)), Mask(pairwise=allowed(rows))
        block = q[:, :, rows.start : rows.stop]
        parts.append(softmax_attention(block, k[:, :, here], v[:, :, here], mask=mask))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _blocks(T: int, size: int) -> list[range]:
    return [range(start, min(start + size, T)) for start in range(0, T, size)]


def _tile_mask(
    allowed: Callable[[range], Bool[Tensor, "b 1 t s"]], rows: range, dtype: torch.dtype
) -> TileMask:
    return TileMask.of(allowed(rows), dtype)


def write(
    store: Float[Tensor, "B H C K"],
    new: Float[Tensor, "B H n K"],
    at: Int[Tensor, "B n"],
    exists: Bool[Tensor, "B n"],
    room: int,
    donate: bool,
) -> Float[Tensor, "B H C2 K"]:
    """`new` at these columns of `store`, each row at its own, where they exist; `room`: columns needed."""
    C, n = store.shape[2], new.shape[2]
    room = max(room, n)  # so that the columns of a row are distinct modulo the room
    if C < room:
        store = F.pad(store, (0, 0, 0, (2 * room if donate else room) - C))
    index = (at % store.shape[2])[:, None, :, None].expand_as(new)
    new = torch.where(exists[:, None, :, None], new, store.gather(2, index))
    tracked = torch.is_grad_enabled() and (store.requires_grad or new.requires_grad)
    return store.scatter_(2, index, new) if donate and not tracked else store.scatter(2, index, new)
