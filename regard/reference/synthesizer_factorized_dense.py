"""Oracle of `synthesizer_factorized_dense` (arXiv 2005.00743): B_ij is one product of two entries made by token i."""

import math

import torch
from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import synthetic


def synthesizer_factorized_dense(
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
    H, max_len = options["num_heads"], options["max_len"]
    w1, b1 = params["synthesis.logits.hidden.weight"], params["synthesis.logits.hidden.bias"]
    w2, b2 = params["synthesis.logits.weight"], params["synthesis.logits.bias"]
    F = w1.shape[0] // H
    a = options["first_factor"] or math.isqrt(max_len)
    b = math.ceil(max_len / a)

    def logits(row: Row, h: int, i: int) -> Tensor:
        hidden = (w1[h * F : (h + 1) * F] @ row.x[i] + b1[h * F : (h + 1) * F]).clamp(min=0)
        left = [w2[h, p] @ hidden + b2[h, p] for p in range(a)]
        right = [w2[h, a + q] @ hidden + b2[h, a + q] for q in range(b)]
        outer = options["tiling"] == "outer"
        return torch.stack([left[j // b if outer else j % a] * right[j % b] for j in range(row.T)])

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
