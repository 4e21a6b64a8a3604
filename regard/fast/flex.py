"""Patterns through torch's FlexAttention: block masks come from the pattern itself, never from a dense mask.

A row of blocks at a time, the pattern says which have a pair, and in which every pair is allowed. Block masks are kept for pattern, length
and device, unless a pattern has a table, whose blocks are added in each call. On CUDA the function is compiled, for each pattern anew but for any length; elsewhere its slow form runs, forward only, so that
results can be compared anywhere.
"""

from collections.abc import Callable
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

from regard.core import Mask, Mixed
from regard.fast.cpu import pattern as tiles
from regard.functional.patterns import Pattern, Scattered, Union, Window
from regard.functional.rows import Form

BLOCK = 128
MASKS = 64
NARROWEST = 16
BLOCKS = [
    f"{kind}_{what}"
    for kind in ("kv", "q", "full_kv", "full_q")
    for what in ("num_blocks", "indices")
]


def attend(q, k, v, *, pattern: Pattern, mask: Mask, scale=None, form: Form) -> Tensor:
    """Takes causal and padding masks."""
    blocks = block_mask(pattern, q.shape[2], causal=mask.causal, device=q.device, valid=mask.valid)
    return _flex(q)(q, k, v, block_mask=blocks, scale=scale)


def window(q, k, v, *, window: int, dilation: int, mask: Mask, form: Form) -> Tensor:
    return attend(q, k, v, pattern=Window(window, window, dilation), mask=mask, form=form)


def unfit(q, k, v, *first, mask: Mask, **options) -> str | None:
    if q.shape[-1] < NARROWEST:
        return f"it needs {NARROWEST} channels in a head, not {q.shape[-1]}"
    for name in ("pairwise", "global_tokens"):
        if getattr(mask, name) is not None:
            return f"it does not take {name}"
    return "learned tokens come before the others" if first else None


def unfit_window(q, k, v, **options) -> str | None:
    return tiles.unfit(q, k, v, **options) or unfit(q, k, v, **options)


def block_mask(
    pattern: Pattern,
    T: int,
    *,
    causal: bool,
    device: torch.device,
    size: int = BLOCK,
    valid: Bool[Tensor, "B T"] | None = None,
):
    """A BlockMask of T tokens; one for each head where a pattern has a table."""
    tables = any(isinstance(term, Scattered) for term in pattern.terms)
    make = _made if tables or valid is not None else _kept
    return make(pattern, T, causal, device, size, valid)


def _made(
    pattern: Pattern, T: int, causal: bool, device: torch.device, size: int, valid: Tensor | None
):
    from torch.nn.attention.flex_attention import BlockMask

    kinds = _kinds(pattern, T, causal, device, size)[None]
    if valid is not None:  # any block may hold padding
        kinds = kinds.clamp_max(1).expand(len(valid), -1, -1, -1).contiguous()
    partial, full = (_listed(kinds == kind) for kind in (1, 2))
    more: tuple[Any, Any] = full if valid is None else (None, None)
    inside = mask_mod(pattern, causal=causal, valid=valid)
    return BlockMask.from_kv_blocks(
        *partial, *more, BLOCK_SIZE=size, mask_mod=inside, seq_lengths=(T, T)
    )


_kept = lru_cache(maxsize=MASKS)(_made)


def _kinds(pattern: Pattern, T: int, causal: bool, device: torch.device, size: int) -> Tensor:
    """[h N N] of blocks of queries by blocks of keys: 0 without a pair, 1 with some (or with a block of a table), 2 with all."""
    N = -(-T // size)
    tables = [term for term in pattern.terms if isinstance(term, Scattered)]
    others = tuple(term for term in pattern.terms if not isinstance(term, Scattered))
    kinds = _kinds_of(others, T, causal, device, size)[None]
    for term in tables:  # without a look at its values, which would wait for the device
        H, n, _ = term.table.shape
        marks = torch.zeros(H, n * term.size, N + 1, dtype=torch.bool, device=device)
        blocks = term.table.repeat_interleave(term.size, 1)[:, :T]
        marks = marks[:, : blocks.shape[1]]
        for inside in {*range(0, term.size, size), term.size - 1}:
            at = (blocks * term.size + inside) // size
            marks = marks.scatter(2, at.masked_fill((blocks < 0) | (at > N), N), True)
        marks = F.pad(marks[..., :N], (0, 0, 0, N * size - marks.shape[1]))
        marks = marks.unflatten(1, (N, size)).any(2)
        kinds = kinds.maximum((marks.tril() if causal else marks).int())
    return kinds


@lru_cache(maxsize=MASKS)
def _kinds_of(
    terms: tuple[Pattern, ...], T: int, causal: bool, device: torch.device, size: int
) -> Tensor:
    """The same [N N] of terms that have no table."""
    N = -(-T // size)
    kinds = torch.zeros(N, N, dtype=torch.int32, device=device)
    places = torch.arange(N * size, device=device)
    for n, i in enumerate(places[:T, None].split(size) if terms else ()):
        pairs = Union(terms).contains(i[None, None], places[None, None, None])[0, 0]
        pairs = pairs & ((places <= i) if causal else (places < T))
        pairs = pairs.expand(len(i), -1).unflatten(-1, (N, size))
        kinds[n] = pairs.any(-1).any(0).int() + pairs.all(-1).all(0).int()
    return kinds


def mask_mod(
    pattern: Pattern, *, causal: bool, valid: Bool[Tensor, "B T"] | None
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The same pairs in the form of torch's FlexAttention: mask_mod(b, h, q_idx, kv_idx)."""

    def allowed(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        pairs = reduce(or_, (_at(term, h, q_idx, kv_idx) for term in pattern.terms))
        pairs = pairs & (kv_idx <= q_idx) if causal else pairs
        return pairs if valid is None else pairs & valid[b, kv_idx]

    return allowed


def _at(term: Pattern, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """True if one query may see one key, in one head."""
    if not isinstance(term, Scattered):
        return term.contains(i, j)
    H, N, r = term.table.shape
    row = (i // term.size).clamp_max(N - 1)  # kernels compute beyond the end, and drop it
    named = (term.table[h if H > 1 else h * 0, row, h * 0 + n] for n in range(r))
    return reduce(or_, (block == j // term.size for block in named), j < 0)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The number of chosen blocks in each row, and their indices, which come first in the row."""
    order = chosen.int().argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(-1, dtype=torch.int32), order.to(torch.int32)


def _flex(q: Tensor) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    attention: Any = flex_attention
    return _compiled if q.device.type == "cuda" else attention


def _compiled(q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, scale: float | None) -> Mixed:
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

    lengths = q.shape[2], q.shape[2]
    block_mask = BlockMask(
        seq_lengths=lengths, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=mask_mod, **blocks
    )
    return flex_attention(q, k, v, block_mask=block_mask, scale=scale)
