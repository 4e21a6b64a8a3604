"""Oracle of `synthesizer_dense` (arXiv 2005.00743): B_ij = entry j of W_2 relu(W_1 x_i + b_1) + b_2."""

from torch import Tensor

from regard.reference._rows import Row
from regard.reference._synthetic import dense_logits, part, synthetic


def synthesizer_dense(
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
        return dense_logits(p, row, H, h, i)

    return synthetic(logits, params, options, x, causal=causal, valid=valid, pairwise=pairwise)
