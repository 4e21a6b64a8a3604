"""Oracle of `synthesizer_random` (arXiv 2005.00743): B_ij = R_ij, whatever the tokens are."""

import torch
from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import synthetic


def synthesizer_random(
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

    def logits(row: Row, h: int, i: int) -> Tensor:
        return torch.stack([params["synthesis.logits.table"][h, i, j] for j in range(row.T)])

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
