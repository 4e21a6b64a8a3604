"""Oracle of `mlp_mixer` (arXiv 2105.01601): one channel at a time through the feed-forward layer across positions."""

import torch
from torch.nn.functional import gelu

from regard.reference._rows import oracle


@oracle
def mlp_mixer(params, options, row):
    """-> (y [B T D], None); global tokens change nothing where all see all."""
    w1, b1 = params["gather.weight"], params["gather.bias"]
    w2, b2 = params["spread.weight"], params["spread.bias"]
    channels = []
    for x in row.x.T:
        hidden = gelu(w1[:, : row.T] @ x + b1)
        channels.append((w2 @ hidden + b2)[: row.T])
    return torch.stack(channels, 1), None
