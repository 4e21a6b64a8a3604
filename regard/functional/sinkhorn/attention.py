"""Attention to a sorted mixture of blocks (Sparse Sinkhorn Attention; Tay et al. 2020, arXiv 2002.11296).

    K'_g = sum_u S_gu K_u,   V'_g = sum_u S_gu V_u        whole blocks are mixed; the order inside them is kept

Query block g attends to the sorted block K'_g and to its own block K_g.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.numerics import wide_type
from regard.functional.softmax.dense import fused, masked_softmax, softmax_weights

NONE = -1e4  # a logarithm whose exponential is zero, and whose gradients are finite

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
    logits = logits.to(wide_type(logits))
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
    before = torch.ones(N, N, dtype=torch.bool, device=logits.device).tril(-1)
    return masked_softmax(logits.to(wide_type(logits)), before)


def attend(
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
    if sort_cut is None:
        pairs = block_pairs(block_size, q.shape[2], valid, mask.causal, q.device)
        sorted_k, sorted_v = mixed(sorting, k), mixed(sorting, v)
        y = beside_sorted(q, k, v, sorted_k, sorted_v, *pairs, join=join, scale=scale)
        return y.flatten(2, 3)[:, :, :T]
    first = sorting[:, :, :sort_cut]
    seen = None if valid is None else cut_keys(valid, first.shape[2])[:, None, None]
    keys, values = (mixed(first, z).flatten(2, 3) for z in (k, v))
    return _fused(q.flatten(2, 3), keys, values, seen, scale)[:, :, :T]


def weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    *,
    sorting: Float[Tensor, "B H N N"],
    block_size: int,
    mask: Mask = OPEN,
    join: Join = "joint",
    sort_cut: int | None = None,
) -> Float[Tensor, "B H T T"]:
    """The weights of tokens that `attend` amounts to, through the sorting."""
    T, C = q.shape[2], block_size
    (q, k), valid = in_blocks(q, k, block_size=C, mask=mask)
    if sort_cut is None:
        pairs = block_pairs(C, q.shape[2], valid, mask.causal, q.device)
        found = block_weights(q, k, sorting, *pairs, join=join)
    else:
        S = sorting[:, :, :sort_cut].to(q.dtype)
        seen = None if valid is None else cut_keys(valid, S.shape[2])
        keys = mixed(S, k).flatten(2, 3)
        slots = softmax_weights(q.flatten(2, 3), keys, mask=Mask(valid=seen)).unflatten(3, (-1, C))
        found = torch.einsum("bhigt,bhgu->bhiut", slots, S).flatten(3)
    found = found[:, :, :T, :T]
    return found if mask.valid is None else found * mask.valid[:, None, None]


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


def block_sums(z: Float[Tensor, "*B T K"], block_size: int) -> Float[Tensor, "*B N K"]:
    rest = -z.shape[-2] % block_size
    z = F.pad(z, (0, 0, 0, rest)) if rest else z
    return z.unflatten(-2, (-1, block_size)).sum(-2)


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
    """Places of the first sorted blocks that hold something."""
    return (valid.any(1)[:, None] & valid.any(2)[:, :blocks, None]).flatten(1)


def mixed(
    sorting: Float[Tensor, "B H G N"], z: Float[Tensor, "B H N C K"]
) -> Float[Tensor, "B H G C K"]:
    return (sorting.to(z.dtype) @ z.flatten(3)).unflatten(3, z.shape[3:])


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
    """Queries of a block see its sorted block and the block itself."""
    B, G = q.shape[0], q.shape[2]
    own, shared = (_per_block(pairs, B, G) for pairs in (own, shared))
    q, k, v, sorted_k, sorted_v = (
        rearrange(z, "b h g c k -> (b g) h c k") for z in (q, k, v, sorted_k, sorted_v)
    )
    if join == "separate":
        y = _fused(q, k, v, own, scale) + _fused(q, sorted_k, sorted_v, shared, scale)
    else:
        keys, values = torch.cat([sorted_k, k], dim=2), torch.cat([sorted_v, v], dim=2)
        y = _fused(q, keys, values, _beside(shared, own), scale)
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


def _fused(q, k, v, allowed: Tensor | None, scale: float | None) -> Tensor:
    """The fused kernel; rows without a key give zero."""
    if allowed is None:
        return fused(q, k, v, scale=scale)
    some = allowed.any(-1, keepdim=True)
    y = fused(q, k, v, allowed | ~some, scale=scale)
    return torch.where(some, y, y.new_zeros(()))


def _per_block(pairs: Tensor | None, B: int, G: int) -> Bool[Tensor, "n 1 c C"] | None:
    return None if pairs is None else pairs.expand(B, G, -1, -1).flatten(0, 1)[:, None]


def _beside(shared: Tensor | None, own: Tensor | None) -> Tensor | None:
    if shared is None or own is None:
        return None
    return torch.cat([shared.expand(-1, -1, own.shape[2], -1), own], dim=-1)
