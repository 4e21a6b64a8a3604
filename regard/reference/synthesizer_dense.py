"""Oracle of `synthesizer_dense` (arXiv 2005.00743): B_ij = entry j of W_2 relu(W_1 x_i + b_1) + b_2, or of W_2 x_i + b_2."""

from regard.reference._rows import oracle
from regard.reference._synthetic import dense_logits, part, synthetic


@oracle
def synthesizer_dense(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    H, p = options["num_heads"], part(params, "logits.")
    return synthetic(lambda h, i: dense_logits(p, row, H, h, i), params, H, row)
