"""Oracle of `scored` (arXiv 1508.04025, 1409.0473, 1410.5401): the score of every pair, one at a time."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax
from regard.reference._scores import score


def scored(
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
    H, normaliser = options["num_heads"], options["normaliser"]
    K = x.shape[-1] // H

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        k = linear(params, "heads.key", row.context).reshape(row.S, H, K)
        v = linear(params, "heads.value", row.context).reshape(row.S, H, K)
        weights = x.new_zeros(H, row.T, row.S)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                scores = [
                    score(options["score"], params, h, q[i, h], k[j, h], j)
                    if row.allowed[h][i][j]
                    else None
                    for j in range(row.S)
                ]
                if normaliser == "softmax":
                    scores = softmax(scores)
                elif normaliser == "sigmoid":
                    scores = [None if s is None else 1 / (1 + (-s).exp()) for s in scores]
                y = x.new_zeros(K)
                for j, w in enumerate(scores):
                    if w is not None:
                        weights[h, i, j] = w.detach()
                        y = y + w * v[j, h]
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
