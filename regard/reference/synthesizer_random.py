"""Oracle of `synthesizer_random` (arXiv 2005.00743): B_ij = R_ij, whatever the tokens are."""

from regard.reference._rows import oracle
from regard.reference._synthetic import random_logits, synthetic


@oracle
def synthesizer_random(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    return synthetic(random_logits, params, options, row)
