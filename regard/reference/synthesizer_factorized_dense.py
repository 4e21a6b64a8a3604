"""Oracle of `synthesizer_factorized_dense` (arXiv 2005.00743): B_ij is one product of two entries made by token i."""

import math

from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import factorized_dense_logits, part, synthetic


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
    H, p = options["num_heads"], part(params, "synthesis.logits.")
    a = options["first_factor"] or math.isqrt(options["max_len"])
    b = math.ceil(options["max_len"] / a)
    outer = options["tiling"] == "outer"

    def logits(row: Row, h: int, i: int) -> Tensor:
        return factorized_dense_logits(p, row, H, h, i, a=a, b=b, outer=outer)

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
