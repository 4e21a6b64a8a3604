"""Oracle of `flash` (arXiv 2202.10447): the dense matrix of both mechanisms, one pair of tokens at a time."""

from regard.reference._gated import chunked, gated, relative, view
from regard.reference._rows import oracle


@oracle
def flash(params, options, row):
    """-> (y [B T D], weights [B 1 T T]); global tokens change nothing where all see all."""
    C = options["chunk_size"]
    paper = options["scale"] == "paper"
    q, k, far_q, far_k = (view(params, row.x, n) for n in range(4))
    bias = relative(params, options, row, C)
    divisor = C if paper else len(q[0]) ** 0.5

    def weigh(h, i):
        def near(keys):
            n = 1 if paper else len(keys)
            return {j: (q[i] @ k[j] / divisor + bias(i, j)).clamp_min(0) ** 2 / n for j in keys}

        return chunked(options, row, i, near, lambda j: far_q[i] @ far_k[j])

    return gated(params, row, weigh)
