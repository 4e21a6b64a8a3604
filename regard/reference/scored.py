"""Oracle of `scored` (arXiv 1508.04025, 1409.0473, 1410.5401): one query at a time."""

from regard.reference._rows import attend, heads, oracle, softmax
from regard.reference._scores import scores as scores_of


@oracle
def scored(params, options, row):
    """-> (y [B T D], weights [B H T S]); global tokens change nothing where all see all."""
    q, k, v = heads(params, row)

    def weigh(h, i):
        keys = row.keys(h, i)
        scores = scores_of(options["score"], params, h, q[i, h], k[keys, h], keys)
        if options["normaliser"] == "softmax":
            return softmax(scores)
        if options["normaliser"] == "sigmoid":
            return {j: s.sigmoid() for j, s in scores.items()}
        return scores

    return attend(params, row, v, weigh)
