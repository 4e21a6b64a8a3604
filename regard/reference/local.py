"""Oracle of `local` (arXiv 1802.05751): softmax over the tokens at most window_size dilated steps away."""

from regard.reference._patterned import attend_over
from regard.reference._rows import oracle


@oracle
def local(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    w = options["window_size"]

    def pairs(h, i, j):
        return any(j == i + step * options["dilation"] for step in range(-w, w + 1))

    return attend_over(pairs, params, options, row)
