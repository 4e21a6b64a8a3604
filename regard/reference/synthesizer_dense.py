"""Oracle of `synthesizer_dense` (arXiv 2005.00743): B_ij = entry j of W_2 relu(W_1 x_i + b_1) + b_2, or of W_2 x_i + b_2."""

from regard.reference._rows import oracle
from regard.reference._synthetic import dense_logits, synthetic


@oracle
def synthesizer_dense(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    return synthetic(dense_logits, params, options, row)
