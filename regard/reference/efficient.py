"""Oracle of `efficient` (arXiv 1812.01243): A_ij = sum_c softmax_c(q_i)_c softmax over the allowed j of k_jc."""

from regard.reference._rows import attend, heads, oracle


@oracle
def efficient(params, options, row):
    """-> (y [B T D], weights [B H T S]); normaliser="scaling": A_ij = q_i k_j / (number of keys)."""
    q, k, v = heads(params, row)

    def weigh(h, i):
        keys = row.keys(h, i)
        if options["normaliser"] == "scaling":
            return {j: q[i, h] @ k[j, h] / row.S for j in keys}
        return dict(zip(keys, k[keys, h].softmax(0) @ q[i, h].softmax(0), strict=True))

    return attend(params, row, v, weigh)
