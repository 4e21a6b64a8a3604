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
    for c in range(row.x.shape[1]):
        hidden = gelu(sum(w1[:, j] * row.x[j, c] for j in range(row.T)) + b1)
        channels.append(torch.stack([w2[i] @ hidden + b2[i] for i in range(row.T)]))
    return torch.stack(channels, dim=1), None
