"""Oracle of `indexed` (arXiv 2512.02556; by blocks: arXiv 2606.13392): keys that a small index scores highest."""

from torch.nn.functional import layer_norm

from regard.reference._rotary import turned
from regard.reference._rows import attend, heads, linear, normed, oracle, products, softmax


@oracle
def indexed(params, options, row):
    """-> (y [B T D], weights [B H T S]); of equal scores later keys are taken."""
    C = options["block_size"]
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
    query, key = turned(query, options), turned(key[:, None], options)[:, 0]

    def score(h, i, j):
        found = query[i] @ key[j] / d**0.5
        return found[h * len(found) // row.H] if C else share[i] @ found.relu()

    def weigh(h, i):
        size = C or 1
        best: dict = {}
        for j in row.keys(h, i):
            found = score(h, i, j)
            best[j // size] = max(found, best.get(j // size, found))
        order = sorted(best, key=lambda b: (C and b == i // C, best[b], b))
        chosen = order[-options["top_k"] :]
        keys = [j for j in row.keys(h, i) if j // size in chosen]
        return softmax(products(q, k, h, i, keys))

    return attend(params, row, v, weigh)
