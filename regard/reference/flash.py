"""Oracle of `flash` (arXiv 2202.10447): the dense matrix of both mechanisms, one pair of tokens at a time."""

import torch
from torch import Tensor

from regard.reference._rotary import rope
from regard.reference._rows import Row, linear, run


def flash(
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
    """-> (y [B T D], weights [B 1 T T]); global tokens change nothing where all see all."""
    gamma, beta = params["unit.offset_scale.gamma"], params["unit.offset_scale.beta"]
    K, C = gamma.shape[1], options["chunk_size"]
    form = options["relative_bias"]

    def silu(a: Tensor) -> Tensor:
        return a / (1 + (-a).exp())

    def share(i: int, T: int) -> float:
        summed = i // C * C if causal else T
        if options["lin_norm"] == "n":
            return 1 / options["max_len"]
        if options["lin_norm"] == "chunk" and causal:
            return 1 / C
        return 1 / max(1, summed)

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        T = row.T
        u, v, z = (
            silu(linear(params, f"unit.{name}", row.x)) for name in ("gate", "value", "shared")
        )
        q, k, far_q, far_k = (
            [rope(z[i] * gamma[view] + beta[view], i) for i in range(T)] for view in range(4)
        )
        if form == "rotary":
            left, right = (
                [rope(params["relative.weight"][s], i) for i in range(T)] for s in (0, 1)
            )
        weights = x.new_zeros(1, T, T)
        mixed = []
        for i in range(T):
            seen = [j for j in range(T) if not causal or j <= i]
            near = [j for j in seen if j // C == i // C]
            y = x.new_zeros(v.shape[1])
            for j in seen:
                w = x.new_zeros(())
                if j in near:
                    b = x.new_zeros(())
                    if form == "rotary":
                        b = left[i] @ right[j]
                    elif form == "toeplitz":
                        b = params["relative.weight"][j - i + C - 1]
                    if options["scale"] == "paper":
                        w = (q[i] @ k[j] / C + b).clamp(min=0) ** 2
                    else:
                        w = (q[i] @ k[j] / K**0.5 + b).clamp(min=0) ** 2 / len(near)
                if not causal or j // C < i // C:
                    w = w + share(i, T) * (far_q[i] @ far_k[j])
                weights[0, i, j] = w.detach()
                y = y + w * v[j]
            mixed.append(u[i] * y)
        return linear(params, "unit.out", torch.stack(mixed)), weights

    return run(mix_row, x, causal=causal, valid=valid)
