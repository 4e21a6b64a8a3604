"""Oracle of `moba` (arXiv 2502.13189): each query's own block of keys, and those whose mean key it fits best."""

from regard.reference._rows import attend, heads, oracle, products, softmax


@oracle
def moba(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    C = options["block_size"]
    q, k, v = heads(params, row, turn=options)
    blocks = [list(range(row.S)[at : at + C]) for at in range(0, row.S, C)]

    def weigh(h, i):
        own = i // C
        others = range(own) if row.causal else [b for b in range(len(blocks)) if b != own]
        fit = {b: (q[i, h] @ k[blocks[b], h].mean(0)).item() for b in others}
        best = sorted(fit, key=fit.__getitem__, reverse=True)[: options["top_k"] - 1]
        keys = [j for b in (own, *best) for j in blocks[b] if row.allowed[h][i][j]]
        return softmax(products(q, k, h, i, keys))

    return attend(params, row, v, weigh)
