"""Oracle of `synthesizer_factorized_dense` (arXiv 2005.00743): B_ij is one product of two entries made by token i."""

import math

from regard.reference._rows import oracle
from regard.reference._synthetic import factorized_dense_logits, synthetic


@oracle
def synthesizer_factorized_dense(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    a = options["first_factor"] or math.isqrt(options["max_len"])
    b = math.ceil(options["max_len"] / a)
    outer = options["tiling"] == "outer"

    def logits(p, row, h, i):
        return factorized_dense_logits(p, row, h, i, a=a, b=b, outer=outer)

    return synthetic(logits, params, row)
