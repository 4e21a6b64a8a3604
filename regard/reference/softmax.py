"""Oracle of `softmax` (arXiv 1706.03762; shared-QK: arXiv 2001.04451): one head, one query, one key at a time."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax as softmax_of


def softmax(
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
    """-> (y [B T D], weights [B H T S]); global tokens change nothing where all see all."""
    H = options["num_heads"]
    G = options.get("num_kv_heads") or H
    K = x.shape[-1] // H
    shared = options.get("shared_qk", False)
    scale = options.get("scale")
    if scale is None:
        scale = 1.0 if shared else K**-0.5

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        v = linear(params, "heads.value", row.context).reshape(row.S, G, K)
        if shared:
            k = torch.stack(
                [
                    torch.stack([q[j, h] / q[j, h].norm().clamp_min(1e-12) for h in range(H)])
                    for j in range(row.S)
                ]
            )
        else:
            k = linear(params, "heads.key", row.context).reshape(row.S, G, K)
        weights = x.new_zeros(H, row.T, row.S)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                g = h * G // H
                keys = [j for j in range(row.S) if row.allowed[h][i][j]]
                if shared and any(j != i for j in keys):
                    keys = [j for j in keys if j != i]
                scores = [scale * q[i, h] @ k[j, g] if j in keys else None for j in range(row.S)]
                y = x.new_zeros(K)
                for j, w in enumerate(softmax_of(scores)):
                    if w is not None:
                        weights[h, i, j] = w.detach()
                        y = y + w * v[j, g]
                heads.append(y)
            mixed.append(torch.cat(heads))
        return linear(params, "heads.out", torch.stack(mixed)), weights

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
