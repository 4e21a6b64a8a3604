"""Oracle of `mixed_chunk` (arXiv 2202.10447): per head, the sum of the two dense matrices, one pair at a time."""

import torch
from torch import Tensor

from regard.reference._rotary import rope
from regard.reference._rows import Row, linear, run, softmax


def mixed_chunk(
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
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    H, C = options["num_heads"], options["chunk_size"]
    K = x.shape[-1] // H

    def share(i: int, T: int) -> float:
        summed = i // C * C if causal else T
        if options["lin_norm"] == "n":
            return 1 / options["max_len"]
        if options["lin_norm"] == "chunk" and causal:
            return 1 / C
        return 1 / max(1, summed)

    def near_weights(scores: list[Tensor | None]) -> list[Tensor | None]:
        if options["local_fn"] == "softmax":
            return softmax(scores)
        n = sum(s is not None for s in scores)
        return [None if s is None else s.clamp(min=0) ** 2 / n for s in scores]

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        T = row.T
        q, k, v = (
            linear(params, f"heads.{name}", row.x).reshape(T, H, K)
            for name in ("query", "key", "value")
        )
        weights = x.new_zeros(H, T, T)
        mixed = [[x.new_zeros(K) for _ in range(H)] for _ in range(T)]
        for h in range(H):
            turned_q = [rope(q[i, h], i) for i in range(T)]
            turned_k = [rope(k[j, h], j) for j in range(T)]
            for i in range(T):
                score = {
                    j: turned_q[i] @ turned_k[j] / K**0.5 for j in range(T) if not causal or j <= i
                }
                near = near_weights(
                    [score[j] if j in score and j // C == i // C else None for j in range(T)]
                )
                for j in score:
                    w = x.new_zeros(())
                    if options["parts"] != "global" and near[j] is not None:
                        w = w + near[j]
                    if options["parts"] != "local" and (not causal or j // C < i // C):
                        w = w + share(i, T) * score[j]
                    weights[h, i, j] = w.detach()
                    mixed[i][h] = mixed[i][h] + w * v[j, h]
        return linear(
            params, "heads.out", torch.stack([torch.cat(heads) for heads in mixed])
        ), weights

    return run(mix_row, x, num_heads=H, causal=causal, valid=valid)
