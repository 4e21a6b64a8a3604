"""Oracle of `longformer` (arXiv 2004.05150): two dense attentions, and the rows of global tokens from the second."""

import torch

from regard.reference._patterned import heads_over
from regard.reference._rows import linear, run


def longformer(
    params,
    options,
    x,
    *,
    context=None,
    causal=False,
    valid=None,
    pairwise=None,
    global_tokens=None,
    plan=None,
):
    """-> (y [B T D], weights [B H T T])"""
    H, w, dilation = options["num_heads"], options["window_size"], options["dilation"]

    def near(row, h, i, j):
        step = dilation if isinstance(dilation, int) else dilation[h]
        return any(j == i + s * step for s in range(-w, w + 1))

    def mix_row(row):
        mixed, weights = heads_over(near, params, H, row)
        wide, wide_weights = heads_over(
            lambda row, h, i, j: True, params, H, row, of="global_heads"
        )
        is_global = torch.tensor(row.is_global, device=x.device)
        mixed = torch.where(is_global[:, None], wide, mixed)
        weights = torch.where(is_global[None, :, None], wide_weights, weights)
        return linear(params, "heads.out", mixed), weights

    masks = dict(causal=causal, valid=valid, pairwise=pairwise, global_tokens=global_tokens)
    return run(mix_row, x, num_heads=H, **masks)
