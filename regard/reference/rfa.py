"""Oracle of `rfa` (arXiv 2103.02143): A_ij = e^(G_i - G_j) (1 - g_j) phi(q_i) phi(k_j), G the running sum of log g."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear as project, run


def rfa(
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
    """-> (y [B T D], weights [B H T S]), in evaluation: of a pool, the first H matrices are used."""
    H = options["num_heads"]
    K = x.shape[-1] // H

    def phi(a: Tensor, h: int) -> Tensor:
        w = params["sigma"][h] * params["projection.w"][h]
        wa = w @ (a / a.norm().clamp_min(1e-6))
        if options.get("features", "fourier") == "arc_cosine":
            return wa.clamp(min=0) / len(w) ** 0.5
        return torch.cat([wa.sin(), wa.cos()]) / len(w) ** 0.5

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = project(params, "heads.query", row.x).reshape(row.T, H, K)
        k = project(params, "heads.key", row.context).reshape(row.S, H, K)
        v = project(params, "heads.value", row.context).reshape(row.S, H, K)
        g = project(params, "gate", row.x).sigmoid() if options.get("gate") else None  # [T H]
        weights = x.new_zeros(H, row.T, row.S)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                keys = [j for j in range(row.S) if row.allowed[h][i][j]]
                raw = {}
                for j in keys:
                    raw[j] = phi(q[i, h], h) @ phi(k[j, h], h)
                    if g is not None:
                        raw[j] = raw[j] * (1 - g[j, h]) * g[j + 1 : i + 1, h].prod()
                total = sum(raw.values(), x.new_zeros(()))
                sign = -1.0 if total < 0 else 1.0
                total = sign * (sign * total).clamp(min=1e-6)
                y = x.new_zeros(K)
                for j in keys:
                    weights[h, i, j] = (raw[j] / total).detach()
                    y = y + raw[j] / total * v[j, h]
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
