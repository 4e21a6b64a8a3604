"""Oracle of `longformer` (arXiv 2004.05150): two dense attentions, and the rows of global tokens from the second."""

import torch

from regard.reference._patterned import heads_over
from regard.reference._rows import linear, oracle


@oracle
def longformer(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    w = options["window_size"]
    dilation = options["dilation"]

    def near(h, i, j):
        step = dilation if isinstance(dilation, int) else dilation[h]
        return any(j == i + s * step for s in range(-w, w + 1))

    mixed, weights = heads_over(near, params, options, row)
    if options["max_global"] != 0:
        wide, wide_weights = heads_over(lambda h, i, j: True, params, options, row, "global_heads")
        is_global = torch.tensor(row.is_global, device=row.x.device)
        mixed = torch.where(is_global[:, None], wide, mixed)
        weights = torch.where(is_global[None, :, None], wide_weights, weights)
    return linear(params, "heads.out", mixed), weights
