"""Oracle of `synthesizer_factorized_random` (arXiv 2005.00743): B_ij = sum_m R1_im R2_jm."""

from regard.reference._rows import oracle
from regard.reference._synthetic import factorized_random_logits, synthetic


@oracle
def synthesizer_factorized_random(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    return synthetic(factorized_random_logits, params, options, row)
