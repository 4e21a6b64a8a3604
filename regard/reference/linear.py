"""Oracle of `linear` (arXiv 2006.16236): A_ij = phi(q_i) phi(k_j), rows divided by their sum + 1e-6.

Rotary positions turn features, after which rows are divided by the sum of those that were not turned (arXiv 2104.09864, 3.3).
"""

import torch
from torch import Tensor

from regard.reference._rotary import turned
from regard.reference._rows import attend, heads, oracle


@oracle
def linear(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    kind = options.get("feature_map", "elu_plus_one")

    def phi(a: Tensor) -> Tensor:
        if kind == "elu_plus_one":
            return torch.where(a > 0, a + 1, a.clamp(max=0).exp())
        if kind == "softplus":
            return a.clamp(min=0) + (1 + (-a.abs()).exp()).log()
        if kind == "relu":
            return a.clamp(min=0)
        return a.clamp(min=0) ** 2 if kind == "squared_relu" else kind(a)

    q, k, v = heads(params, row)
    q, k = phi(q), phi(k)

    at_q, at_k = turned(q, options), turned(k, options)

    def weigh(h, i):
        keys = row.keys(h, i)
        total = sum(q[i, h] @ k[j, h] for j in keys) + 1e-6
        return {j: at_q[i, h] @ at_k[j, h] / total for j in keys}

    return attend(params, row, v, weigh)
