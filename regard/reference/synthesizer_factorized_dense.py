"""Oracle of `synthesizer_factorized_dense` (arXiv 2005.00743): B_ij is one product of two entries made by token i."""

from regard.reference._rows import oracle
from regard.reference._synthetic import factorized_dense_logits, synthetic


@oracle
def synthesizer_factorized_dense(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    return synthetic(factorized_dense_logits, params, options, row)
