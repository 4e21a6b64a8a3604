"""Oracle of `synthesizer_random` (arXiv 2005.00743): B_ij = R_ij, whatever the tokens are."""

from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import part, random_logits, synthetic


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
    H, p = options["num_heads"], part(params, "synthesis.logits.")

    def logits(row: Row, h: int, i: int) -> Tensor:
        return random_logits(p, row, H, h, i)

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
