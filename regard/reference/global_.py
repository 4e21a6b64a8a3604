"""Oracle of `global` (arXiv 2004.08483): oneself, the global tokens, and learned tokens before the sequence."""

from regard.reference._patterned import attend_over
from regard.reference._rows import oracle


@oracle
def global_(params, options, row):
    """-> (y [B T D], weights [B H T E+T], external tokens first)"""
    first = options["num_global"]

    def pairs(h, i, j):
        return i == j or i < first or j < first

    return attend_over(pairs, params, options, row)
