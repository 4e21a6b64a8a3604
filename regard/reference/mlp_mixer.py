"""Oracle of `mlp_mixer` (arXiv 2105.01601): one channel at a time through the feed-forward layer across positions."""

import torch
from torch.nn.functional import gelu

from regard.reference._rows import oracle


@oracle
def mlp_mixer(params, options, row):
    """-> (y [B T D], None); global tokens change nothing where all see all."""
    w1, b1 = params["gather.weight"], params["gather.bias"]
    w2, b2 = params["spread.weight"], params["spread.bias"]
    hidden = [gelu(w1[:, : row.T] @ x + b1) for x in row.x.T]
    channels = [(w2 @ z + b2)[: row.T] for z in hidden]
    return torch.stack(channels, 1), None
