"""Oracle of `flash` (arXiv 2202.10447): the dense matrix of both mechanisms, one pair of tokens at a time."""

from torch import Tensor

from regard.reference._gated import share, silu
from regard.reference._rotary import rope
from regard.reference._rows import linear, mix, oracle


@oracle
def flash(params, options, row):
    """-> (y [B T D], weights [B 1 T T]); global tokens change nothing where all see all."""
    gamma, beta = params["unit.offset_scale.gamma"], params["unit.offset_scale.beta"]
    T, K, C = row.T, gamma.shape[1], options["chunk_size"]
    form = options["relative_bias"]
    u, v, z = (silu(linear(params, f"unit.{name}", row.x)) for name in ("gate", "value", "shared"))
    q, k, far_q, far_k = (
        [rope(z[i] * gamma[view] + beta[view], i) for i in range(T)] for view in range(4)
    )
    if form == "rotary":
        left, right = ([rope(params["relative.weight"][s], i) for i in range(T)] for s in (0, 1))

    def bias(i: int, j: int) -> Tensor:
        if form == "rotary":
            return left[i] @ right[j]
        if form == "toeplitz":
            return params["relative.weight"][j - i + C - 1]
        return row.x.new_zeros(())

    def weigh(h, i):
        seen = [j for j in range(T) if not row.causal or j <= i]
        near = [j for j in seen if j // C == i // C]
        found = {}
        for j in seen:
            w = row.x.new_zeros(())
            if options["parts"] == "global" or j not in near:
                pass
            elif options["scale"] == "paper":
                w = (q[i] @ k[j] / C + bias(i, j)).clamp(min=0) ** 2
            else:
                w = (q[i] @ k[j] / K**0.5 + bias(i, j)).clamp(min=0) ** 2 / len(near)
            if options["parts"] != "local" and (not row.causal or j // C < i // C):
                w = w + share(options, row, i) * (far_q[i] @ far_k[j])
            found[j] = w
        return found

    mixed, weights = mix(row, 1, v[:, None], weigh)
    return linear(params, "unit.out", u * mixed), weights
