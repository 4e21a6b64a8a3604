"""Oracle of `reformer` (arXiv 2001.04451): the keys of each query by the definitions, from given buckets."""

import math

from torch import Tensor

from regard.reference._rows import attend, heads, oracle, softmax


@oracle
def reformer(params, options, row):
    """-> (y [B T D], weights [B H T T]); plan["buckets"] [B H R T] counts the tokens that are present."""
    m = options["chunk_size"]
    past_only = row.causal or options["published_causal"]
    buckets = row.plan["buckets"][row.index, :, :, : row.T].tolist()

    def in_band(bucket: list[int], i: int) -> set[int]:
        """The last m earlier tokens of the query's bucket."""
        return set([j for j in range(i) if bucket[j] == bucket[i]][-m:])

    def in_chunks(bucket: list[int], i: int) -> set[int]:
        """Tokens of the query's chunk and its neighbours, in the order by (bucket, position)."""
        order = sorted(range(len(bucket)), key=lambda t: (bucket[t], t))
        chunk = {t: place // m for place, t in enumerate(order)}
        low = chunk[i] - options["chunks_before"]
        high = chunk[i] + options["chunks_after"]
        near = {j for j in order if low <= chunk[j] <= high}
        if options["same_bucket_only"]:
            near = {j for j in near if bucket[j] == bucket[i]}
        return near

    q, k, v = heads(params, row)

    def weigh(h, i):
        allowed = row.allowed[h][i]
        rounds = [0] * row.T  # how many rounds of hashing bring each key to the query
        for bucket in buckets[h]:
            for j in (in_band if row.causal else in_chunks)(bucket, i):
                rounds[j] += 1
        for j in range(row.T):
            if row.is_global[i] or row.is_global[j]:
                rounds[j] = max(rounds[j], 1)
            if not allowed[j] or j == i or (past_only and j > i):
                rounds[j] = 0
        if not any(rounds) and allowed[i]:
            rounds[i] = 1

        def score(j: int) -> Tensor:
            repeated = 0.0 if options["dedup"] else math.log(rounds[j])
            return options["scale"] * k[j, h] @ q[i, h] + repeated

        return softmax({j: score(j) for j in range(row.T) if rounds[j]})

    return attend(params, row, v, weigh)
