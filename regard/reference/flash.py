"""Oracle of `flash` (arXiv 2202.10447): the dense matrix of both mechanisms, one pair of tokens at a time."""

from regard.reference._gated import gated, relative, share, view
from regard.reference._rows import oracle


@oracle
def flash(params, options, row):
    """-> (y [B T D], weights [B 1 T T]); global tokens change nothing where all see all."""
    T, C, paper = row.T, options["chunk_size"], options["scale"] == "paper"
    q, k, far_q, far_k = (view(params, row.x, n) for n in range(4))
    bias = relative(params, options, row, C)
    divisor = C if paper else len(q[0]) ** 0.5

    def weigh(h, i):
        seen = [j for j in range(T) if not row.causal or j <= i]
        near = [j for j in seen if j // C == i // C]
        found = {}
        for j in seen:
            w = row.x.new_zeros(())
            if options["parts"] != "global" and j in near:
                w = (q[i] @ k[j] / divisor + bias(i, j)).clamp(min=0) ** 2
                w = w if paper else w / len(near)
            if options["parts"] != "local" and (not row.causal or j // C < i // C):
                w = w + share(options, row, i) * (far_q[i] @ far_k[j])
            found[j] = w
        return found

    return gated(params, row, weigh)
