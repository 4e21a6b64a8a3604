"""Oracle of `reformer` (arXiv 2001.04451): who meets whom by the definitions, from given buckets, one query at a time."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax


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
                scores = [
                    options["scale"] * q[i, h] @ k[j, h]
                    + (0.0 if options["dedup"] else torch.log(x.new_tensor(float(met[j]))))
                    if met[j]
                    else None
                    for j in range(row.T)
                ]
                y = x.new_zeros(K)
                for j, w in enumerate(softmax(scores)):
                    if w is not None:
                        weights[h, i, j] = w.detach()
                        y = y + w * v[j, h]
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
