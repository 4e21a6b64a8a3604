"""Oracle of `linear` (arXiv 2006.16236): A_ij = phi(q_i) phi(k_j), rows divided by their sum + 1e-6."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear as project, run


def linear(
    params,
    options,
    x,
    *,
    context=None,
    causal=False,
    valid=None,
    pairwise=None,
    global_tokens=None,
    plan=None,
):
    """-> (y [B T D], weights [B H T S])"""
    H = options["num_heads"]
    K = x.shape[-1] // H

    def phi(a: Tensor) -> Tensor:
        kind = options.get("feature_map", "elu_plus_one")
        if kind == "elu_plus_one":
            return torch.where(a > 0, a + 1, a.clamp(max=0).exp())
        if kind == "softplus":
            return a.clamp(min=0) + (1 + (-a.abs()).exp()).log()
        if kind == "relu":
            return a.clamp(min=0)
        return a.clamp(min=0) ** 2 if kind == "squared_relu" else kind(a)

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = phi(project(params, "heads.query", row.x)).reshape(row.T, H, K)
        k = phi(project(params, "heads.key", row.context)).reshape(row.S, H, K)
        v = project(params, "heads.value", row.context).reshape(row.S, H, K)
        weights = x.new_zeros(H, row.T, row.S)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                keys = [j for j in range(row.S) if row.allowed[h][i][j]]
                total = sum((q[i, h] @ k[j, h] for j in keys), x.new_zeros(())) + 1e-6
                y = x.new_zeros(K)
                for j in keys:
                    w = q[i, h] @ k[j, h] / total
                    weights[h, i, j] = w.detach()
                    y = y + w * v[j, h]
                heads.append(y)
            mixed.append(torch.cat(heads))
        return project(params, "heads.out", torch.stack(mixed)), weights

    return run(
        mix_row,
        x,
        num_heads=H,
        context=context,
        causal=causal,
        valid=valid,
        pairwise=pairwise,
        global_tokens=global_tokens,
    )
