"""Oracle of `performer` (arXiv 2009.14794): A_ij = phi(q_i) phi(k_j), rows divided by their sum."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear as project, run


def performer(
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
    """-> (y [B T D], weights [B H T S])

    Causal features are exp(e - constant) with one constant for the row, which cancels; otherwise the largest exponent
    of a query's features, or of all keys' features, is subtracted and 1e-6 added.
    """
    H = options["num_heads"]
    K = x.shape[-1] // H
    kind = options.get("features", "positive")
    eps = 0.0 if causal else 1e-6

    def raw(a: Tensor, h: int) -> Tensor:
        """Exponents; for relu and a function f the features themselves."""
        a = a / K**0.25
        w = params["projection.w"][h if options.get("per_head") else 0]
        if kind == "relu":
            return (w @ a).clamp(min=0) + 1e-3
        if callable(kind):
            return kind(w @ a) + 1e-3
        signs = (1, -1) if kind == "hyperbolic" else (1,)
        return torch.cat([sign * (w @ a) - a @ a / 2 for sign in signs])

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = project(params, "heads.query", row.x).reshape(row.T, H, K)
        k = project(params, "heads.key", row.context).reshape(row.S, H, K)
        v = project(params, "heads.value", row.context).reshape(row.S, H, K)
        weights = x.new_zeros(H, row.T, row.S)
        heads = []
        for h in range(H):
            e_k = [raw(k[j, h], h) for j in range(row.S)]
            if kind == "relu" or callable(kind):
                phi_k = e_k
            else:
                top = torch.stack(e_k).max().detach()
                phi_k = [(e - top).exp() + eps for e in e_k]
            mixed = []
            for i in range(row.T):
                e_q = raw(q[i, h], h)
                phi_q = (
                    e_q
                    if kind == "relu" or callable(kind)
                    else (e_q - e_q.max().detach()).exp() + eps
                )
                keys = [j for j in range(row.S) if row.allowed[h][i][j]]
                total = sum((phi_q @ phi_k[j] for j in keys), x.new_zeros(()))
                y = x.new_zeros(K)
                for j in keys:
                    w = phi_q @ phi_k[j] / total
                    weights[h, i, j] = w.detach()
                    y = y + w * v[j, h]
                mixed.append(y)
            heads.append(torch.stack(mixed))
        return project(params, "heads.out", torch.cat(heads, dim=-1)), weights

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
