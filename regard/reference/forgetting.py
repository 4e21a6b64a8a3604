"""Oracle of `forgetting` (arXiv 2503.02130): softmax of q k / sqrt(K) and of what the gates after each key have left of it."""

from regard.reference._rows import attend, heads, linear, oracle, products, softmax


@oracle
def forgetting(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    q, k, v = heads(params, row)
    f = linear(params, "forget", row.x).sigmoid().log()  # [T H]

    def weigh(h, i):
        found = products(q, k, h, i, row.keys(h, i))
        return softmax({j: z + f[j + 1 : i + 1, h].sum() for j, z in found.items()})

    return attend(params, row, v, weigh)
