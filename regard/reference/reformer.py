"""Oracle of `reformer` (arXiv 2001.04451): who meets whom by the definitions, from given buckets, one query at a time."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run


def reformer(
    params,
    options,
    x,
    *,
    context=None,
    causal=False,
    valid=None,
    pairwise=None,
    global_tokens=None,
    plan=None,
):
    """-> (y [B T D], weights [B H T T]); plan["buckets"] [B H R T] speaks of the tokens that are present."""
    H, m = options["num_heads"], options["chunk_size"]
    K = x.shape[-1] // H
    R = options["num_hashes"]
    past_only = causal or options["published_causal"]

    def in_band(bucket: list[int], i: int) -> set[int]:
        """The last m earlier tokens of the query's bucket."""
        return set([j for j in range(i) if bucket[j] == bucket[i]][-m:])

    def in_chunks(bucket: list[int], i: int) -> set[int]:
        """Tokens of the query's chunk and its neighbours, in the order by (bucket, position)."""
        order = sorted(range(len(bucket)), key=lambda t: (bucket[t], t))
        chunk = {t: place // m for place, t in enumerate(order)}
        low, high = chunk[i] - options["chunks_before"], chunk[i] + options["chunks_after"]
        near = {j for j in order if low <= chunk[j] <= high}
        if options["same_bucket_only"]:
            near = {j for j in near if bucket[j] == bucket[i]}
        return near

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        q = linear(params, "heads.query", row.x).reshape(row.T, H, K)
        v = linear(params, "heads.value", row.x).reshape(row.T, H, K)
        k = q / q.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        weights = x.new_zeros(H, row.T, row.T)
        mixed = []
        for i in range(row.T):
            heads = []
            for h in range(H):
                met = [0] * row.T
                for r in range(R):
                    bucket = plan["buckets"][row.index, h, r, : row.T].tolist()
                    for j in (in_band if causal else in_chunks)(bucket, i):
                        met[j] += 1
                for j in range(row.T):
                    if row.is_global[i] or row.is_global[j]:
                        met[j] = max(met[j], 1)
                    if not row.allowed[h][i][j] or j == i or (past_only and j > i):
                        met[j] = 0
                if not any(met) and row.allowed[h][i][i]:
                    met[i] = 1
                keys = [j for j in range(row.T) if met[j]]
                y = x.new_zeros(K)
                if keys:
                    scores = options["scale"] * k[keys, h] @ q[i, h]
                    if not options["dedup"]:
                        scores = scores + x.new_tensor([met[j] for j in keys]).log()
                    w = scores.softmax(0)
                    weights[h, i, keys] = w.detach()
                    y = w @ v[keys, h]
                heads.append(y)
            mixed.append(torch.cat(heads))
        return linear(params, "heads.out", torch.stack(mixed)), weights

    return run(
        mix_row,
        x,
        num_heads=H,
        causal=causal,
        valid=valid,
        pairwise=pairwise,
        global_tokens=global_tokens,
    )
