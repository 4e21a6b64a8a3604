"""Oracle of `luong_local` (arXiv 1508.04025): dense scores, the window as a list of keys, softmax, Gaussian."""

import math

import torch

from regard.reference._rows import attend, heads, oracle, softmax
from regard.reference._scores import scores


@oracle
def luong_local(params, options, row):
    """-> (y [B T D], weights [B H T S]); plan: "window" [B H T], the middle of each predicted window."""
    D_w = options["window_size"]
    predictive = options["alignment"] == "predictive"
    q, k, v = heads(params, row)

    def weigh(h, t):
        if predictive:
            hidden = torch.tanh(params["W_p"][h] @ q[t, h])
            p = row.S * (params["v_p"][h] @ hidden).sigmoid()
            middle = int(row.plan["window"][row.index, h, t]) if row.plan else math.floor(p)
        else:
            middle = t + row.S - row.T if row.causal else min(t, row.S - 1)
        window = [j for j in row.keys(h, t) if middle - D_w <= j <= middle + D_w]
        align = softmax(scores(options["score"], params, h, q[t, h], k[window, h], window))
        if predictive:
            sigma = D_w / 2
            align = {j: a * (-((j - p) ** 2) / (2 * sigma**2)).exp() for j, a in align.items()}
        if options["renormalise"]:
            total = sum(align.values())
            align = {j: a / total for j, a in align.items()}
        return align

    return attend(params, row, v, weigh)
