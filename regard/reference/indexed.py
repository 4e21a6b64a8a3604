"""Oracle of `indexed` (arXiv 2512.02556; by blocks: arXiv 2606.13392): keys that a small index scores highest."""

from torch.nn.functional import layer_norm

from regard.reference._rotary import turned
from regard.reference._rows import (
    attend,
    heads,
    linear,
    normed,
    oracle,
    products,
    softmax,
)


@oracle
def indexed(params, options, row):
    """-> (y [B T D], weights [B H T S]); of equal scores later keys are taken."""
    count, C = options["top_k"], options["block_size"]
    q, k, v = heads(params, row, turn=options)
    key = linear(params, "index_key", row.context)
    d = key.shape[1]
    query = linear(params, "index_query", row.x).reshape(row.T, -1, d)
    if C is None:
        key = layer_norm(key, (d,), params["index_norm.weight"], params["index_norm.bias"], 1e-6)
        share = linear(params, "index_weight", row.x) / query.shape[1] ** 0.5
    else:
        key = normed(params, "index_norm", key)
        query = normed(params, "query_norm", query)
    key = turned(key[:, None], options)[:, 0]
    query = turned(query, options)

    def score(h, i, j):
        products = query[i] @ key[j] / d**0.5
        if C is None:
            return (share[i] @ products.relu()).item()
        return products[h * len(products) // row.H].item()

    def weigh(h, i):
        blocks: dict[int, list[int]] = {}
        for j in row.keys(h, i):
            blocks.setdefault(j // (C or 1), []).append(j)
        best = {b: (max(score(h, i, j) for j in of), b) for b, of in blocks.items()}
        order = sorted(best, key=lambda b: (C is not None and b == i // C, best[b]))
        keys = [j for b in order[-count:] for j in blocks[b]]
        return softmax(products(q, k, h, i, keys))

    return attend(params, row, v, weigh)
