"""Weights that only positions decide (Raganato, Scherrer, Tiedemann 2020, arXiv 2002.10260).

Each pattern gives an unnormalised weight for query position i and key position j of a row of n tokens. A row without a
token to look at (nothing before the first, fewer than two before ...) looks at the boundary token instead.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OPEN, Mask, Mixed, MixedTile, Values
from regard.functional.rows import Impl, tiled

PATTERNS = {
    "current": lambda i, j, n: j == i,
    "previous": lambda i, j, n: j == (i - 1).clamp_min(0),
    "next": lambda i, j, n: j == torch.minimum(i + 1, n - 1),
    "left": lambda i, j, n: torch.where(j <= i - 2, (j + 1) ** 3, (i < 2) & (j == 0)),
    "right": lambda i, j, n: torch.where(j >= i + 2, (n - j) ** 3, (i > n - 3) & (j == n - 1)),
    "end": lambda i, j, n: (j + 1) ** 3,
    "start": lambda i, j, n: (n - j) ** 3,
    "last": lambda i, j, n: j == n - 1,
}
CAUSAL_PATTERNS = ("current", "previous", "left")


def fixed_weights(
    patterns: Sequence[str],
    query: Int[Tensor, "#b T"],
    key: Int[Tensor, "#b S"],
    n: Int[Tensor, "#b"],
    *,
    dtype: torch.dtype,
    mask: Mask = OPEN,
    rows: slice = slice(None),
) -> Float[Tensor, "b H T S"]:
    """One head per pattern, divided by the sum over the allowed keys; a row without any is zero. In float32 at least."""
    dtype = torch.promote_types(dtype, torch.float32)
    i = query[:, rows, None]
    j = key[:, None, :]
    heads = [PATTERNS[name](i, j, n[:, None, None]).to(dtype) for name in patterns]
    weights = torch.stack(torch.broadcast_tensors(i, j, *heads)[2:], 1)
    T, S = query.shape[1], key.shape[1]
    weights = weights * mask.dense(T, S, device=query.device, rows=rows)
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1)


def fixed_attention(
    patterns: Sequence[str],
    v: Values,
    query: Int[Tensor, "#b T"],
    key: Int[Tensor, "#b S"],
    n: Int[Tensor, "#b"],
    *,
    mask: Mask,
    impl: Impl,
) -> Mixed:
    """Values under `fixed_weights`, one tile of queries at a time."""

    def some(rows: slice, _: Tensor, v: Tensor) -> MixedTile:
        weights = fixed_weights(patterns, query, key, n, dtype=v.dtype, mask=mask, rows=rows)
        return weights.type_as(v) @ v

    return tiled(some, impl, query[..., None], v)
