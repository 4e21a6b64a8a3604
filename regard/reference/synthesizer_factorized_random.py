"""Oracle of `synthesizer_factorized_random` (arXiv 2005.00743): B_ij = sum_m R1_im R2_jm."""

import torch
from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import synthetic


def synthesizer_factorized_random(
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
    left, right = params["synthesis.logits.left"], params["synthesis.logits.right"]

    def logits(row: Row, h: int, i: int) -> Tensor:
        return torch.stack([(left[h, i] * right[h, j]).sum() for j in range(row.T)])

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
