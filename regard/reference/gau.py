"""Oracle of `gau` (arXiv 2202.10447): the dense matrix A_ij = relu(q_i k_j + b_ij)^2, one pair at a time."""

from torch import Tensor

from regard.reference._gated import silu
from regard.reference._rotary import rope
from regard.reference._rows import linear, mix, oracle


@oracle
def gau(params, options, row):
    """-> (y [B T D], weights [B 1 T S]); global tokens change nothing where all see all."""
    gamma, beta = params["unit.offset_scale.gamma"], params["unit.offset_scale.beta"]
    K, max_len = gamma.shape[1], options["max_len"]
    scale, form = options["scale"], options["relative_bias"]
    u, v = silu(linear(params, "unit.gate", row.x)), silu(linear(params, "unit.value", row.context))
    z_q, z_k = (silu(linear(params, "unit.shared", z)) for z in (row.x, row.context))
    first = row.S - row.T if row.causal else 0
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
        return row.x.new_zeros(())

    def weigh(h, i):
        keys = row.keys(h, i)
        if scale == "paper":
            return {j: (q[i] @ k[j] / max_len + bias(i, j)).clamp(min=0) ** 2 for j in keys}
        n = len(keys) if scale == "visible" else max_len
        return {j: (q[i] @ k[j] / K**0.5 + bias(i, j)).clamp(min=0) ** 2 / n for j in keys}

    mixed, weights = mix(row, 1, v[:, None], weigh)
    return linear(params, "unit.out", u * mixed), weights
