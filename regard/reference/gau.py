"""Oracle of `gau` (arXiv 2202.10447): the dense matrix A_ij = relu(q_i k_j + b_ij)^2, one pair at a time."""

from regard.reference._gated import gated, relative, view
from regard.reference._rows import oracle


@oracle
def gau(params, options, row):
    """-> (y [B T D], weights [B 1 T S]); global tokens change nothing where all see all."""
    max_len, scale = options["max_len"], options["scale"]
    first = row.S - row.T if row.causal else 0
    q = view(params, row.x, 0, first)
    k = view(params, row.context, 1)
    bias = relative(params, options, row, max_len, first)
    divisor = max_len if scale == "paper" else len(q[0]) ** 0.5

    def weigh(h, i):
        keys = row.keys(h, i)
        n = {"paper": 1, "visible": len(keys), "ns": max_len}[scale]
        return {j: (q[i] @ k[j] / divisor + bias(i, j)).clamp_min(0) ** 2 / n for j in keys}

    return gated(params, row, weigh)
