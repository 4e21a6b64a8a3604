"""Oracle of `gau` (arXiv 2202.10447): the dense matrix A_ij = relu(q_i k_j + b_ij)^2, one pair at a time."""

import torch
from torch import Tensor

from regard.reference._rotary import rope
from regard.reference._rows import Row, linear, run


def gau(
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
    """-> (y [B T D], weights [B 1 T S]); global tokens change nothing where all see all."""
    gamma, beta = params["unit.offset_scale.gamma"], params["unit.offset_scale.beta"]
    K, max_len = gamma.shape[1], options["max_len"]
    scale, form = options["scale"], options["relative_bias"]

    def silu(a: Tensor) -> Tensor:
        return a / (1 + (-a).exp())

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        u, v = (
            silu(linear(params, "unit.gate", row.x)),
            silu(linear(params, "unit.value", row.context)),
        )
        z_q, z_k = (
            silu(linear(params, "unit.shared", row.x)),
            silu(linear(params, "unit.shared", row.context)),
        )
        first = row.S - row.T if causal else 0
        q = [rope(z_q[i] * gamma[0] + beta[0], first + i) for i in range(row.T)]
        k = [rope(z_k[j] * gamma[1] + beta[1], j) for j in range(row.S)]
        if form == "rotary":
            left = [rope(params["relative.weight"][0], first + i) for i in range(row.T)]
            right = [rope(params["relative.weight"][1], j) for j in range(row.S)]

        def bias(i: int, j: int) -> Tensor:
            if form == "rotary":
                return left[i] @ right[j]
            if form == "toeplitz":
                return params["relative.weight"][j - first - i + max_len - 1]
            return x.new_zeros(())

        weights = x.new_zeros(1, row.T, row.S)
        mixed = []
        for i in range(row.T):
            keys = [j for j in range(row.S) if row.allowed[0][i][j]]
            y = x.new_zeros(v.shape[1])
            for j in keys:
                if scale == "paper":
                    w = (q[i] @ k[j] / max_len + bias(i, j)).clamp(min=0) ** 2
                else:
                    n = len(keys) if scale == "visible" else max_len
                    w = (q[i] @ k[j] / K**0.5 + bias(i, j)).clamp(min=0) ** 2 / n
                weights[0, i, j] = w.detach()
                y = y + w * v[j]
            mixed.append(u[i] * y)
        return linear(params, "unit.out", torch.stack(mixed)), weights

    return run(mix_row, x, context=context, causal=causal, valid=valid, pairwise=pairwise)
