"""Attention to a sorted mixture of blocks (Sparse Sinkhorn Attention; Tay et al. 2020, arXiv 2002.11296).

    K'_g = sum_u S_gu K_u,   V'_g = sum_u S_gu V_u        whole blocks are mixed; the order inside them is kept

Query block g attends to the sorted block K'_g and to its own block K_g.
"""

import math
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import near
from regard.functional.sinkhorn.by_head import Meeting, SortedHeads
from regard.functional.softmax.dense import masked_softmax

NONE = -1e4  # a logarithm whose exponential is zero, and whose gradients are finite

LARGE = 1 << 12  # numbers in a head's keys; smaller heads are faster together

Join = Literal["joint", "separate"]


def balance(
    logits: Float[Tensor, "B H N N"],
    present: Bool[Tensor, "B N"] | None = None,
    *,
    num_iterations: int,
) -> Float[Tensor, "B H N N"]:
    """Sinkhorn's doubly stochastic matrix: rows, then columns, divided by their sums, in logarithms.

    Columns sum to one; rows do, as far as the iterations get. Absent blocks have neither row nor column.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    pairs = None if present is None else (present[:, :, None] & present[:, None, :])[:, None]
    logits = logits if pairs is None else logits.masked_fill(~pairs, NONE)
    for _ in range(num_iterations):
        for dim in (-1, -2):
            logits = logits - logits.logsumexp(dim, keepdim=True)
            logits = logits if pairs is None else logits.masked_fill(~pairs, NONE)
    return logits.exp()


def earlier_blocks(logits: Float[Tensor, "B H N N"]) -> Float[Tensor, "B H N N"]:
    """The causal form: each row is a softmax over the blocks before it. The first has none."""
    N = logits.shape[-1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    before = torch.ones(N, N, dtype=torch.bool, device=logits.device).tril(-1)
    return masked_softmax(logits, before)


def sinkhorn_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    sorting: Float[Tensor, "B H N N"],
    block_size: int,
    mask: Mask = OPEN,
    join: Join = "joint",
    sort_cut: int | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attention to the sorted block and the own block, or with `sort_cut` to that many first sorted blocks alone.

    sorting: from `balance`, or from `earlier_blocks` where the mask is causal; N blocks cover T tokens.
    join: one softmax over both blocks, or the sum of two.
    """
    T = q.shape[2]
    (q, k, v), valid = in_blocks(q, k, v, block_size=block_size, mask=mask)
    if sort_cut is not None:
        kept = sorting[:, :, :sort_cut]
        keys, values = (mixed(kept, z).flatten(2, 3) for z in (k, v))
        seen = None if valid is None else cut_keys(valid, kept.shape[2])[:, None, None]
        y = attend(q.flatten(2, 3), keys, values, seen, scale)
        return y[:, :, :T]
    own, shared = block_pairs(block_size, q.shape[2], valid, mask.causal, q.device)
    if near(q) and join == "joint" and T * q.shape[-1] >= LARGE:
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        blocks = own, shared, q.shape[2]
        ways = _parts(*blocks), partial(_meetings, *blocks)
        y = SortedHeads.apply(q, k, v, sorting.to(q.dtype), *ways, scale)
    else:
        y = block_attention(q, k, v, sorting, own, shared, join=join, scale=scale)
    return y.flatten(2, 3)[:, :, :T]


def in_blocks(
    *parts: Float[Tensor, "B H T K"], block_size: int, mask: Mask
) -> tuple[list[Tensor], Bool[Tensor, "B N C"] | None]:
    """Each part as [B H N C K], and `valid` [B N C], None where every place holds a token."""
    T = parts[0].shape[2]
    rest = -T % block_size
    valid = None if mask.causal else mask.valid
    if rest and valid is None and not mask.causal:
        valid = parts[0].new_ones(parts[0].shape[0], T, dtype=torch.bool)
    if mask.valid is not None:
        parts = tuple(torch.where(mask.valid[:, None, :, None], z, z.new_zeros(())) for z in parts)
    if rest:
        parts = tuple(F.pad(z, (0, 0, 0, rest)) for z in parts)
        valid = None if valid is None else F.pad(valid, (0, rest))
    blocks = [z.unflatten(2, (-1, block_size)) for z in parts]
    return blocks, None if valid is None else valid.unflatten(1, (-1, block_size))


def block_pairs(
    block_size: int,
    num_blocks: int,
    valid: Bool[Tensor, "B N C"] | None,
    causal: bool,
    device: torch.device,
) -> tuple[Bool[Tensor, "_ _ _ _"] | None, Bool[Tensor, "_ _ _ _"] | None]:
    """Pairs of a block with itself, and with its sorted block; None: all."""
    if causal:
        own = torch.ones(block_size, block_size, dtype=torch.bool, device=device).tril()
        later = torch.arange(num_blocks, device=device) > 0
        return own[None, None], later[None, :, None, None].expand(-1, -1, -1, block_size)
    if valid is None:
        return None, None
    shared = valid.any(1)[:, None] & valid.any(2)[:, :, None]
    return valid[:, :, None], shared[:, :, None]


def cut_keys(valid: Bool[Tensor, "B N C"], blocks: int) -> Bool[Tensor, "B S"]:
    """Which places of the first sorted blocks hold something."""
    return (valid.any(1)[:, None] & valid.any(2)[:, :blocks, None]).flatten(1)


def mixed(
    sorting: Float[Tensor, "B H G N"], z: Float[Tensor, "B H N C K"]
) -> Float[Tensor, "B H G C K"]:
    return (sorting.to(z.dtype) @ z.flatten(3)).unflatten(3, z.shape[3:])


def block_attention(
    q: Float[Tensor, "B H G C K"],
    k: Float[Tensor, "B H G C K"],
    v: Float[Tensor, "B H G C V"],
    sorting: Float[Tensor, "B H G N"],
    own: Bool[Tensor, "#B #G #C C"] | None,
    shared: Bool[Tensor, "#B #G 1 C"] | None,
    *,
    join: Join = "joint",
    scale: float | None = None,
) -> Float[Tensor, "B H G C V"]:
    """Queries of a block see what `sorting` mixes for it, and their own block."""
    shown = mixed(sorting, k), mixed(sorting, v)
    return beside_sorted(q, k, v, *shown, own, shared, join=join, scale=scale)


def beside_sorted(
    q: Float[Tensor, "B H G C K"],
    k: Float[Tensor, "B H G C K"],
    v: Float[Tensor, "B H G C V"],
    sorted_k: Float[Tensor, "B H G C K"],
    sorted_v: Float[Tensor, "B H G C V"],
    own: Bool[Tensor, "#B #G #C C"] | None,
    shared: Bool[Tensor, "#B #G 1 C"] | None,
    *,
    join: Join,
    scale: float | None = None,
) -> Float[Tensor, "B H G C V"]:
    """The same from blocks that are mixed already."""
    B, G = q.shape[0], q.shape[2]
    own, shared = (_per_block(pairs, B, G) for pairs in (own, shared))
    q, k, v, sorted_k, sorted_v = (
        rearrange(z, "b h g c k -> (b g) h c k") for z in (q, k, v, sorted_k, sorted_v)
    )
    if join == "separate":
        y = attend(q, k, v, own, scale) + attend(q, sorted_k, sorted_v, shared, scale)
    else:
        keys, values = torch.cat([sorted_k, k], dim=2), torch.cat([sorted_v, v], dim=2)
        y = attend(q, keys, values, _beside(shared, own), scale)
    return rearrange(y, "(b g) h c v -> b h g c v", b=B)


def block_weights(
    q: Float[Tensor, "B H N C K"],
    k: Float[Tensor, "B H N C K"],
    sorting: Float[Tensor, "B H N N"],
    own: Bool[Tensor, "#B #G #C C"] | None,
    shared: Bool[Tensor, "#B #G 1 C"] | None,
    *,
    join: Join,
) -> Float[Tensor, "B H T T"]:
    """The weights of tokens that `block_attention` amounts to, through the sorting; T = N C."""
    B, H, N, C, K = q.shape
    everything = torch.ones(1, 1, 1, C, dtype=torch.bool, device=q.device)
    pairs = [(everything if z is None else z).expand(-1, -1, C, -1)[:, None] for z in (shared, own)]
    pairs = [z.expand(z.shape[0], 1, N, C, C) for z in pairs]
    scores = [q @ z.transpose(-1, -2) / math.sqrt(K) for z in (mixed(sorting, k), k)]
    if join == "separate":
        to_sorted, to_own = (masked_softmax(s, p) for s, p in zip(scores, pairs, strict=True))
    else:
        top = max(z.shape[0] for z in pairs)
        pairs = [z.expand(top, -1, -1, -1, -1) for z in pairs]
        both = masked_softmax(torch.cat(scores, dim=-1), torch.cat(pairs, dim=-1))
        to_sorted, to_own = both.chunk(2, dim=-1)
    weights = torch.einsum("bhgit,bhgu->bhgiut", to_sorted, sorting.to(q.dtype))
    here = torch.eye(N, dtype=q.dtype, device=q.device)[:, None, :, None]
    return (weights + to_own[:, :, :, :, None, :] * here).reshape(B, H, N * C, N * C)


def attend(q, k, v, allowed: Tensor | None, scale: float | None) -> Tensor:
    """The fused kernel; rows without a key give zero."""
    if allowed is None:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)
    some = allowed.any(-1, keepdim=True)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed | ~some, scale=scale)
    return torch.where(some, y, y.new_zeros(()))


def _per_block(pairs: Tensor | None, B: int, G: int) -> Bool[Tensor, "n 1 c C"] | None:
    return None if pairs is None else pairs.expand(B, G, -1, -1).flatten(0, 1)[:, None]


def _meetings(own: Tensor | None, shared: Tensor | None, N: int) -> list[Meeting]:
    """Blocks whose queries see alike; with an order, the first has no sorted block, and all others are alike."""
    if own is None or shared is None or own.shape[1] > 1:
        return [Meeting(slice(0, N), _beside(shared, own))]
    both = ((slice(0, 1), shared[:, :1]), (slice(1, N), shared[:, 1:2]))
    return [Meeting(blocks, _beside(some, own)) for blocks, some in both if some.shape[1]]


def _parts(own: Tensor | None, shared: Tensor | None, N: int) -> list[Meeting]:
    """As `_meetings`; with an order, what is sorted is met apart, and needs no bias of [C 2C] beside that of [C C]."""
    if own is None or shared is None or own.shape[1] > 1:
        return _meetings(own, shared, N)
    sorted_keys, own_keys = slice(0, 1), slice(1, 2)
    parts = [Meeting(slice(0, N), own, own_keys), Meeting(slice(1, N), None, sorted_keys)]
    return parts if N > 1 else parts[:1]


def _beside(shared: Tensor | None, own: Tensor | None) -> Tensor | None:
    if shared is None or own is None:
        return None
    rows = max(shared.shape[2], own.shape[2])
    return torch.cat([z.expand(-1, -1, rows, -1) for z in (shared, own)], dim=-1)
