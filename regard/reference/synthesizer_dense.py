"""Oracle of `synthesizer_dense` (arXiv 2005.00743): B_ij = entry j of W_2 relu(W_1 x_i + b_1) + b_2."""

import torch
from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import synthetic


def synthesizer_dense(
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
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    H = options["num_heads"]
    w1, b1 = params["synthesis.logits.hidden.weight"], params["synthesis.logits.hidden.bias"]
    w2, b2 = params["synthesis.logits.weight"], params["synthesis.logits.bias"]
    F = w1.shape[0] // H

    def logits(row: Row, h: int, i: int) -> Tensor:
        hidden = (w1[h * F : (h + 1) * F] @ row.x[i] + b1[h * F : (h + 1) * F]).clamp(min=0)
        g = h % w2.shape[0]
        return torch.stack([w2[g, j] @ hidden + b2[g, j] for j in range(row.T)])

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
