"""Oracle of `synthesizer_factorized_random` (arXiv 2005.00743): B_ij = sum_m R1_im R2_jm."""

from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import factorized_random_logits, part, synthetic


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
    H, p = options["num_heads"], part(params, "synthesis.logits.")

    def logits(row: Row, h: int, i: int) -> Tensor:
        return factorized_random_logits(p, row, H, h, i)

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
