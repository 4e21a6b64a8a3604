"""Oracle of `efficient` (arXiv 1812.01243): A_ij = sum_c softmax_c(q_i)_c softmax over the allowed j of k_jc."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear as project, run, softmax_of_all


def efficient(
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
    """-> (y [B T D], weights [B H T S]); normaliser="scaling": A_ij = q_i k_j / (number of keys)."""
    H = options["num_heads"]
    K = x.shape[-1] // H
    scaling = options.get("normaliser", "softmax") == "scaling"

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = project(params, "heads.query", row.x).reshape(row.T, H, K)
        k = project(params, "heads.key", row.context).reshape(row.S, H, K)
        v = project(params, "heads.value", row.context).reshape(row.S, H, K)
        weights = x.new_zeros(H, row.T, row.S)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                keys = [j for j in range(row.S) if row.allowed[h][i][j]]
                if scaling:
                    found = {j: q[i, h] @ k[j, h] / row.S for j in keys}
                else:
                    rho = torch.stack(softmax_of_all(q[i, h]))
                    channels = softmax_of_all(k[j, h] for j in keys)
                    found = {j: rho @ channel for j, channel in zip(keys, channels, strict=True)}
                y = x.new_zeros(K)
                for j, w in found.items():
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
