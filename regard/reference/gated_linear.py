"""Oracle of `gated_linear` (arXiv 2312.06635, 2404.07904): the state, token by token, with a decay for each channel of keys."""

from torch.nn.functional import silu

from regard.reference._rows import linear, normed, oracle
from regard.reference._scan import all_heads, low_rank, split


@oracle
def gated_linear(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    q, k, v = split(params, row, None, row.H)
    tied = options["form"] == "hgrn2"
    if tied:
        least = options["lower_bound"]
        a = least + (1 - least) * k.sigmoid()
        o, weights = all_heads(silu(q), 1 - a, v, a)
    else:
        a = low_rank(params, "decay", row.x).sigmoid() ** (1 / 16)
        o, weights = all_heads(q / q.shape[2] ** 0.5, k, v, a.view(k.shape))
    y = normed(params, "norm", o).flatten(1)
    y = y if tied else y * silu(linear(params, "gate", row.x))
    return linear(params, "out", y), weights
