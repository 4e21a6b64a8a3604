"""Oracle of `gated_delta` (arXiv 2412.06464): the state, token by token."""

import torch
from torch.nn.functional import silu

from regard.reference._rows import linear, normed, oracle
from regard.reference._scan import all_heads, decays, split, unit


@oracle
def gated_delta(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    q, k, v = split(params, row, silu, options["num_key_heads"] or row.H)
    b = linear(params, "write", row.x).sigmoid()
    b = 2 * b if options["negative_eigenvalues"] else b
    a = torch.ones_like(b)
    if options["decay"]:
        _, a = decays(params, row)
    o, weights = all_heads(unit(q) / q.shape[2] ** 0.5, unit(k), v, a, b)
    y = normed(params, "norm", o).flatten(1)
    if options["gate"]:
        y = y * silu(linear(params, "gate", row.x))
    return linear(params, "out", y), weights
