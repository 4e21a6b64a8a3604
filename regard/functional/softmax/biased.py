"""Softmax attention with a bias added to every score, computed for one tile of queries at a time.

    y_i = sum_j w_ij v_j,   w_i = softmax over the allowed j of  scale q_i . k_j + bias_ij

The bias is a function, so that no [H T S] tensor is stored: the backward computes each tile again.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import by_tiles, visible_keys
from regard.functional.shared.implementation import Impl, cut
from regard.functional.softmax.dense import allowed_pairs, fused

Bias = Callable[[slice, slice], Tensor]  # queries, keys -> [b H t s]


def biased_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    *,
    bias: Bias,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    window: int | None = None,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Like `softmax_attention`, with `bias(queries, keys)` [b H t s] added to the scaled scores.

    window: under `mask.causal`, a query sees no more than the last `window` keys.
    """
    T, S = q.shape[2], k.shape[2]

    def attend(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        cols = visible_keys(mask, T, S, rows, window)
        allowed = pairs(mask, T, S, rows, cols, exclude_self, window, q.device)
        some = allowed.any(-1, keepdim=True)
        y = fused(
            q[:, :, rows],
            k[:, :, cols],
            v[:, :, cols],
            bias(rows, cols).masked_fill(~(allowed | ~some), -torch.inf),
            scale=scale,
            dropout=dropout,
        )
        return torch.where(some, y, y.new_zeros(()))

    how = cut("softmax", impl, q)
    if window is None:
        tile = how.queries(q.shape[0] * q.shape[1] * S * q.element_size())
    else:  # a tile of fewer queries sees fewer keys
        tile = min(how.tile, max(window, how.tile // 2))
    return by_tiles(attend, T, tile, q, k, v, random=dropout > 0)


def pairs(
    mask: Mask,
    T: int,
    S: int,
    rows: slice,
    cols: slice,
    exclude_self: bool,
    window: int | None,
    device: torch.device,
) -> Bool[Tensor, "b h t s"]:
    """Allowed pairs of these queries and keys."""
    allowed = allowed_pairs(mask, T, S, rows, cols, exclude_self, device)
    if window is None or not mask.causal:
        return allowed
    last = mask.last_key(T, S, device)[:, rows]
    return allowed & (torch.arange(S, device=device)[cols] > last[:, None, :, None] - window)
