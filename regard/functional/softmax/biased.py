"""Softmax attention with a number added to every score, made for one block of queries at a time.

    y_i = sum_j w_ij v_j,   w_i = softmax over the allowed j of  scale q_i . k_j + bias_ij

The bias comes as a function, so that no [H T S] tensor is stored: a training step, too, makes each block anew.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.core.mask import OPEN, Mask
from regard.functional.softmax.dense import QUERY_BLOCK, allowed_pairs, is_grouped

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
) -> Float[Tensor, "B H T V"]:
    """As `softmax_attention`, with `bias(queries, keys)` [b H t s] added to the scaled scores.

    window: under `mask.causal`, a query sees no more than the last `window` keys.
    """
    T, S = q.shape[2], k.shape[2]
    attend = partial(
        _block,
        mask=mask,
        bias=bias,
        scale=scale,
        exclude_self=exclude_self,
        window=window,
        dropout=dropout,
    )
    block = QUERY_BLOCK if window is None else min(max(window, 128), QUERY_BLOCK)
    if T <= block:
        return attend(q, k, v, rows=slice(0, T), cols=met_keys(mask, T, S, slice(0, T), window))
    if torch.is_grad_enabled():
        attend = partial(checkpoint, attend, use_reentrant=False)
    parts = []
    for start in range(0, T, block):
        rows = slice(start, min(start + block, T))
        parts.append(attend(q, k, v, rows=rows, cols=met_keys(mask, T, S, rows, window)))
    return torch.cat(parts, dim=2)


def met_keys(mask: Mask, T: int, S: int, rows: slice, window: int | None) -> slice:
    """The keys that some query of `rows` may meet, as far as causality and the window say; one at least."""
    if not mask.causal or mask.shift is not None:
        return slice(0, S)
    stop = max(rows.stop + S - T, 1)
    first = 0 if window is None else rows.start + S - T - window + 1
    return slice(min(max(first, 0), stop - 1), stop)


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
    """The pairs that are used, for these queries and the keys that they may meet."""
    allowed = allowed_pairs(mask, T, S, rows, cols, exclude_self, device)
    if window is None or not mask.causal:
        return allowed
    last = mask.last_key(T, S, device)[:, rows]
    return allowed & (torch.arange(S, device=device)[cols] > last[:, None, :, None] - window)


def _block(q, k, v, *, rows, cols, mask, bias, scale, exclude_self, window, dropout):
    allowed = pairs(mask, q.shape[2], k.shape[2], rows, cols, exclude_self, window, q.device)
    some = allowed.any(-1, keepdim=True)
    y = F.scaled_dot_product_attention(
        q[:, :, rows],
        k[:, :, cols],
        v[:, :, cols],
        attn_mask=bias(rows, cols).masked_fill(~(allowed | ~some), -torch.inf),
        scale=scale,
        dropout_p=dropout,
        enable_gqa=is_grouped(q, k),
    )
    return torch.where(some, y, y.new_zeros(()))
