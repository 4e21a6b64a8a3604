"""Oracle of `luong_local` (arXiv 1508.04025): dense scores, the window as a list of keys, softmax, Gaussian."""

import math

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax
from regard.reference._scores import score


def luong_local(
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
    """-> (y [B T D], weights [B H T S]); plan: "window" [B H T], the middle of each predicted window."""
    H, D_w = options["num_heads"], options["window_size"]
    K = x.shape[-1] // H
    predictive = options["alignment"] == "predictive"

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        k = linear(params, "heads.key", row.context).reshape(row.S, H, K)
        v = linear(params, "heads.value", row.context).reshape(row.S, H, K)
        weights = x.new_zeros(H, row.T, row.S)
        mixed = []
        for t in range(row.T):
            heads = []
            for h in range(H):
                p = x.new_tensor(0.0)
                if predictive:
                    hidden = torch.tanh(params["W_p"][h] @ q[t, h])
                    p = row.S / (1 + (-(params["v_p"][h] @ hidden)).exp())
                    middle = int(plan["window"][row.index, h, t]) if plan else math.floor(p)
                else:
                    middle = t + row.S - row.T if causal else min(t, row.S - 1)
                scores = []
                for j in range(row.S):
                    inside = middle - D_w <= j <= middle + D_w and row.allowed[h][t][j]
                    scores.append(
                        score(options["score"], params, h, q[t, h], k[j, h], j) if inside else None
                    )
                align = softmax(scores)
                if predictive:
                    sigma = D_w / 2
                    align = [
                        None if a is None else a * (-((j - p) ** 2) / (2 * sigma**2)).exp()
                        for j, a in enumerate(align)
                    ]
                if options["renormalise"]:
                    total = sum(a for a in align if a is not None)
                    align = [None if a is None else a / total for a in align]
                y = x.new_zeros(K)
                for j, a in enumerate(align):
                    if a is not None:
                        weights[h, t, j] = a.detach()
                        y = y + a * v[j, h]
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
