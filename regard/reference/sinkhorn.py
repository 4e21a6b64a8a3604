"""Oracle of `sinkhorn` (arXiv 2002.11296): the sorting as an explicit matrix, one head and one query at a time."""

import math

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run


def sinkhorn(
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
    """-> (y [B T D], weights [B H T T])"""
    H = options["num_heads"]
    K = x.shape[-1] // H
    C = options["block_size"] or 2 * math.isqrt(options["max_len"])

    def logits(row: Row, blocks: list[range], q: Tensor, k: Tensor) -> Tensor:
        """[H N N]"""
        N = len(blocks)
        if options["sort_net"] == "attention":
            means_k = torch.stack([k[list(block)].mean(0) for block in blocks])
            means_q = torch.stack(
                [q[block[0]] if causal else q[list(block)].mean(0) for block in blocks]
            )
            scores = torch.stack([means_q[:, h] @ means_k[:, h].T / K**0.5 for h in range(H)])
        else:
            parts = []
            for block in blocks:
                seen = row.x[: block[0] + 1] if causal else row.x[list(block)]
                parts.append(seen.sum(0))
            summary = torch.stack(parts)
            if options["sort_net"] == "mlp":
                summary = linear(params, "sort_net.hidden", summary).clamp(min=0)
            scores = (
                linear(params, "sort_net.out", summary).reshape(N, H, -1)[:, :, :N].transpose(0, 1)
            )
        return scores / options["temperature"]

    def sorting(scores: Tensor) -> Tensor:
        """[H N N]"""
        H, N, _ = scores.shape
        if causal:
            rows = [
                [
                    torch.cat([scores[h, g, :g].softmax(0), scores.new_zeros(N - g)])
                    for g in range(N)
                ]
                for h in range(H)
            ]
            return torch.stack([torch.stack(of_head) for of_head in rows])
        for _ in range(options["num_iterations"]):
            scores = torch.stack([s - s.logsumexp(1)[:, None] for s in scores])
            scores = torch.stack([s - s.logsumexp(0)[None, :] for s in scores])
        return scores.exp()

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        T = row.T
        q, k, v = (
            linear(params, f"heads.{n}", row.x).reshape(T, H, K) for n in ("query", "key", "value")
        )
        blocks = [range(start, min(start + C, T)) for start in range(0, T, C)]
        N = len(blocks)
        S = sorting(logits(row, blocks, q, k))
        # column c of block g of the sorted keys, as weights over tokens
        slots: dict[tuple[int, int, int], Tensor] = {}
        for h in range(H):
            for g in range(N):
                for c in range(C):
                    sources = [u for u in range(N) if c < len(blocks[u]) and (u < g or not causal)]
                    if sources:
                        slot = x.new_zeros(T)
                        for u in sources:
                            slot = (
                                slot
                                + S[h, g, u]
                                * torch.eye(T, dtype=x.dtype, device=x.device)[blocks[u][c]]
                            )
                        slots[h, g, c] = slot
        one = torch.eye(T, dtype=x.dtype, device=x.device)
        rows = []
        for h in range(H):
            of_head = []
            for i in range(T):
                g = i // C
                if options["sort_cut"] is not None:
                    near = [
                        slots[h, s, c]
                        for s in range(min(options["sort_cut"], N))
                        for c in range(C)
                        if (h, s, c) in slots
                    ]
                    of_head.append(attended(q[i, h], k[:, h], near))
                    continue
                near = [slots[h, g, c] for c in range(C) if (h, g, c) in slots]
                own = [one[j] for j in blocks[g] if j <= i or not causal]
                if options["join"] == "joint":
                    w = attended(q[i, h], k[:, h], near + own)
                else:
                    w = attended(q[i, h], k[:, h], own)
                    if near:
                        w = w + attended(q[i, h], k[:, h], near)
                if options["mixture"]:
                    w = w + attended(
                        q[i, h], k[:, h], [one[j] for j in range(T) if j <= i or not causal]
                    )
                of_head.append(w)
            rows.append(torch.stack(of_head))
        weights = torch.stack(rows)
        mixed = torch.cat([weights[h] @ v[:, h] for h in range(H)], dim=1)
        return linear(params, "heads.out", mixed), weights

    def attended(q: Tensor, k: Tensor, slots: list[Tensor]) -> Tensor:
        """Weights over tokens [T] of a softmax over slots, each a mixture of tokens."""
        mixtures = torch.stack(slots)
        return (mixtures @ k @ q / K**0.5).softmax(0) @ mixtures

    return run(
        mix_row,
        x,
        num_heads=H,
        causal=causal,
        valid=valid,
        pairwise=pairwise,
        global_tokens=global_tokens,
    )
