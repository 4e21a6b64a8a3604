"""Oracle of `mixed_chunk` (arXiv 2202.10447): per head, the sum of the two dense matrices, one pair at a time."""

from regard.reference._gated import chunked
from regard.reference._rows import attend, heads, oracle, products, softmax


@oracle
def mixed_chunk(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    q, k, v = heads(params, row, turn={"position": "rotary"})

    def weigh(h, i):
        scores = products(q, k, h, i, range(row.T))

        def near(keys):
            if options["local_fn"] == "softmax":
                return softmax({j: scores[j] for j in keys})
            return {j: scores[j].clamp_min(0) ** 2 / len(keys) for j in keys}

        return chunked(options, row, i, near, scores.__getitem__)

    return attend(params, row, v, weigh)
