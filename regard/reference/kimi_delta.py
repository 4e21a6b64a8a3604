"""Oracle of `kimi_delta` (arXiv 2510.26692): the state, token by token, with a decay for each channel of keys."""

from torch.nn.functional import silu, softplus

from regard.reference._rows import linear, normed, oracle
from regard.reference._scan import all_heads, low_rank, split, unit


@oracle
def kimi_delta(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    q, k, v = split(params, row, silu, row.H)
    b = linear(params, "write", row.x).sigmoid()
    step = softplus(low_rank(params, "decay.project", row.x) + params["decay.bias"])
    g = -params["decay.A_log"].exp()[:, None] * step.view(row.T, row.H, -1)
    if options["least_decay"] is not None:
        g = g.clamp_min(options["least_decay"])
    o, weights = all_heads(unit(q) / q.shape[2] ** 0.5, unit(k), v, g.exp(), b)
    gate = low_rank(params, "gate", row.x).sigmoid()
    return linear(params, "out", normed(params, "norm", o).flatten(1) * gate), weights
