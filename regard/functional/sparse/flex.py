"""Patterns through torch's FlexAttention: block masks come from the pattern itself, never from a dense mask.

For each block of queries the pattern names the keys that it may hold (`keys`, `scattered`); only the blocks of these are
evaluated, and marked as full where every pair is allowed. Block masks are kept for pattern, length and device. On CUDA
the function is compiled, for each pattern anew but for any length; elsewhere its slow form runs, forward only, so that
results can be compared anywhere.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.implementation import compiles
from regard.functional.sparse.patterns import Pattern, PerHead, mask_mod

BLOCK = 128
MASKS = 64
BLOCKS = [
    f"{kind}_{what}"
    for kind in ("kv", "q", "full_kv", "full_q")
    for what in ("num_blocks", "indices")
]


def flex_pattern_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """`pattern_attention` by FlexAttention; takes causal and padding masks."""
    T = q.shape[2]
    blocks = block_mask(pattern, T, causal=mask.causal, device=q.device, size=BLOCK)
    if mask.valid is not None:
        blocks = _with_padding(blocks, pattern, mask)
    return _flex(q)(q, k, v, block_mask=blocks, scale=scale)


@lru_cache(maxsize=MASKS)
def block_mask(pattern: Pattern, T: int, *, causal: bool, device: torch.device, size: int = BLOCK):
    """A BlockMask of T tokens; one for each head where the pattern has one for each."""
    from torch.nn.attention.flex_attention import BlockMask

    heads = pattern.heads if isinstance(pattern, PerHead) else (pattern,)
    kinds = torch.stack(
        [_kinds(one, T, size, causal, device) for one in heads], dim=1
    )  # [h' heads N N]
    kinds = kinds.flatten(0, 1)[None]
    partial, full = (_listed(kinds == kind) for kind in (1, 2))
    return BlockMask.from_kv_blocks(
        *partial,
        *full,
        BLOCK_SIZE=size,
        mask_mod=mask_mod(pattern, causal=causal),
        seq_lengths=(T, T),
    )


def _kinds(pattern: Pattern, T: int, size: int, causal: bool, device: torch.device) -> Tensor:
    """[h N N] of blocks of queries by blocks of keys: 0 without a pair, 1 with some, 2 with all."""
    rows_of, N = [], -(-T // size)
    for n in range(N):
        rows = range(n * size, min((n + 1) * size, T))
        named = sorted(
            block for block in _named(pattern, rows, T, size) if not causal or block <= n
        )
        i = torch.arange(rows.start, rows.stop, device=device)[None, None, :, None]
        j = (torch.tensor(named, device=device)[:, None] * size).long()
        j = (j + torch.arange(size, device=device)).flatten()
        pairs = pattern.contains(i, j[None, None, None]) & (j < T)
        pairs = pairs & (j <= i) if causal else pairs
        pairs = pairs.expand(1, -1, len(rows), len(j)).unflatten(-1, (len(named), size))
        kind = pairs.any(-1).any(2).int() + pairs.all(-1).all(2).int()  # [1 h named]
        row = torch.zeros(kind.shape[1], N, dtype=torch.int32, device=device)
        row[:, named] = kind[0]
        rows_of.append(row)
    h = max(row.shape[0] for row in rows_of)
    return torch.stack([row.expand(h, -1) for row in rows_of], dim=1)


def _named(pattern: Pattern, rows: range, T: int, size: int) -> set[int]:
    """The blocks that may hold keys of these queries."""
    found: set[int] = set()
    for term in pattern.terms:
        for residue in range(min(term.step, len(rows))):
            for keys in term.keys(rows[residue :: term.step], T):
                if keys.step <= size and len(keys):
                    found.update(range(keys[0] // size, keys[-1] // size + 1))
                else:
                    found.update(key // size for key in keys)
        scattered = term.scattered(rows, T)
        if scattered is not None:
            found.update((scattered[scattered >= 0] // size).unique().tolist())
    return found


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The number of chosen blocks in each row, and their indices, which come first in the row."""
    order = chosen.int().argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(-1, dtype=torch.int32), order.to(torch.int32)


def _with_padding(blocks, pattern: Pattern, mask: Mask):
    """Every block is partial: any may hold padding."""
    from torch.nn.attention.flex_attention import BlockMask

    inside, valid = mask_mod(pattern, causal=mask.causal), mask.valid
    assert valid is not None

    def allowed(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return inside(b, h, q_idx, kv_idx) & valid[b, kv_idx]

    h, N = blocks.kv_indices.shape[1], blocks.kv_indices.shape[-1]
    chosen = torch.zeros(1, h, N, N + 1, dtype=torch.bool, device=valid.device)
    for count, places in (
        (blocks.kv_num_blocks, blocks.kv_indices),
        (blocks.full_kv_num_blocks, blocks.full_kv_indices),
    ):
        taken = torch.arange(N, device=valid.device) < count[..., None]
        chosen.scatter_(3, places.long().where(taken, N), True)
    B = valid.shape[0]
    count, places = (z.expand(B, *z.shape[1:]).contiguous() for z in _listed(chosen[..., :N]))
    return BlockMask.from_kv_blocks(
        count,
        places,
        BLOCK_SIZE=blocks.BLOCK_SIZE,
        mask_mod=allowed,
        seq_lengths=blocks.seq_lengths,
    )


def _flex(q: Tensor) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    attention: Any = flex_attention
    return _compiled if compiles(q) else attention


def _compiled(
    q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, scale: float | None
) -> Float[Tensor, "B H T V"]:
    """Numbers of the pattern are constants of its kernel, lengths are not.

    Otherwise numbers become symbols as soon as a second pattern has others, and beyond the limit of eight kernels the
    slow form would run, which fills a dense matrix. Beyond this limit, which is that of the masks, there is an error.
    """
    with torch._dynamo.config.patch(specialize_int=True, recompile_limit=MASKS):
        blocks = {name: getattr(block_mask, name) for name in BLOCKS}
        return _compile()(q, k, v, blocks, block_mask.mask_mod, scale)


@cache
def _compile() -> Callable[..., Tensor]:
    return torch.compile(_attend, fullgraph=True)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: dict[str, Any],
    mask_mod: Callable[..., Tensor],
    scale: float | None,
) -> Tensor:
    """The block mask is put together inside, so that its length is that of the queries, symbol or number."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    lengths, sizes = (q.shape[2], q.shape[2]), (BLOCK, BLOCK)
    block_mask: Any = BlockMask(seq_lengths=lengths, BLOCK_SIZE=sizes, mask_mod=mask_mod, **blocks)
    return flex_attention(q, k, v, block_mask=block_mask, scale=scale)
