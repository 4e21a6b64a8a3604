"""Oracle of `bigbird` (arXiv 2007.14062): the set of blocks that each block of queries sees, given the random ones."""

from regard.reference._patterned import attend_over
from regard.reference._rows import oracle


@oracle
def bigbird(params, options, row):
    """-> (y [B T D], weights [B H T E+T], external tokens first); plan: random_blocks [H N r], -1 for none"""
    b = options["block_size"]
    drawn = row.plan["random_blocks"].tolist()

    def pairs(h, i, j):
        query, key = i // b, j // b
        if abs(query - key) <= 1 or key in drawn[h][query]:
            return True
        ends = {0} if row.causal else {0, (row.T - 1) // b}
        return options["global_blocks"] and (query in ends or key in ends)

    return attend_over(pairs, params, options, row)
