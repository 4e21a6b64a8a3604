"""Oracle of `rfa` (arXiv 2103.02143): A_ij = e^(G_i - G_j) (1 - g_j) phi(q_i) phi(k_j), G the running sum of log g."""

import torch
from torch import Tensor

from regard.reference._rows import attend, heads, linear, oracle


@oracle
def rfa(params, options, row):
    """-> (y [B T D], weights [B H T S]), in evaluation: of a pool, the first H matrices are used."""

    def phi(a: Tensor, h: int) -> Tensor:
        w = params["sigma"][h] * params["projection.w"][h]
        wa = w @ (a / a.norm().clamp_min(1e-6))
        if options["features"] == "arc_cosine":
            return wa.clamp_min(0) / len(w) ** 0.5
        return torch.cat([wa.sin(), wa.cos()]) / len(w) ** 0.5

    q, k, v = heads(params, row)
    phi_q, phi_k = ([[phi(a, h) for h, a in enumerate(token)] for token in z] for z in (q, k))
    g = linear(params, "gate", row.x).sigmoid() if options["gate"] else None  # [T H]

    def weigh(h, i):
        A = {}
        for j in row.keys(h, i):
            A[j] = phi_q[i][h] @ phi_k[j][h]
            if g is not None:
                A[j] = A[j] * (1 - g[j, h]) * g[j + 1 : i + 1, h].prod()
        total = sum(A.values(), row.x.new_zeros(()))
        sign = -1.0 if total < 0 else 1.0
        return {j: a / (sign * (sign * total).clamp_min(1e-6)) for j, a in A.items()}

    return attend(params, row, v, weigh)
