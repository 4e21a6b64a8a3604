"""Oracle of `linear` (arXiv 2006.16236): A_ij = phi(q_i) phi(k_j), rows divided by their sum + 1e-6."""

import torch
from torch import Tensor

from regard.reference._rows import heads, linear as project, mix, oracle


@oracle
def linear(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    H, kind = options["num_heads"], options.get("feature_map", "elu_plus_one")

    def phi(a: Tensor) -> Tensor:
        if kind == "elu_plus_one":
            return torch.where(a > 0, a + 1, a.clamp(max=0).exp())
        if kind == "softplus":
            return a.clamp(min=0) + (1 + (-a.abs()).exp()).log()
        if kind == "relu":
            return a.clamp(min=0)
        return a.clamp(min=0) ** 2 if kind == "squared_relu" else kind(a)

    q, k, v = heads(params, row, H)
    q, k = phi(q), phi(k)

    def weigh(h, i):
        A = {j: q[i, h] @ k[j, h] for j in row.keys(h, i)}
        total = sum(A.values()) + 1e-6
        return {j: a / total for j, a in A.items()}

    mixed, weights = mix(row, H, v, weigh)
    return project(params, "heads.out", mixed), weights
