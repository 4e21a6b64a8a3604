"""Oracle of `longformer` (arXiv 2004.05150): two dense attentions, and the rows of global tokens from the second."""

import torch

from regard.reference._patterned import heads_over
from regard.reference._rows import linear, oracle


@oracle
def longformer(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    H, w, dilation = options["num_heads"], options["window_size"], options["dilation"]

    def near(h, i, j):
        step = dilation if isinstance(dilation, int) else dilation[h]
        return any(j == i + s * step for s in range(-w, w + 1))

    mixed, weights = heads_over(near, params, H, row, options=options)
    if options["max_global"] == 0:
        return linear(params, "heads.out", mixed), weights
    given = {"of": "global_heads", "options": options}
    wide, wide_weights = heads_over(lambda h, i, j: True, params, H, row, **given)
    is_global = torch.tensor(row.is_global, device=row.x.device)
    mixed = torch.where(is_global[:, None], wide, mixed)
    weights = torch.where(is_global[None, :, None], wide_weights, weights)
    return linear(params, "heads.out", mixed), weights
