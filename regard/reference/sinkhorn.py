"""Oracle of `sinkhorn` (arXiv 2002.11296): the sorting as an explicit matrix, one head and one query at a time."""

import math

import torch
from torch import Tensor

from regard.reference._rows import attend, heads, linear, oracle


@oracle
def sinkhorn(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    H, T, causal = row.H, row.T, row.causal
    C = options["block_size"] or 2 * math.isqrt(options["max_len"])
    q, k, v = heads(params, row)
    K = q.shape[-1]
    blocks = [range(T)[start : start + C] for start in range(0, T, C)]
    N = len(blocks)

    def block_scores() -> Tensor:
        """[H N N]"""
        if options["sort_net"] == "attention":
            of_q = [q[block[0]] if causal else q[list(block)].mean(0) for block in blocks]
            of_k = [k[list(block)].mean(0) for block in blocks]
            return torch.einsum("ghk,uhk->hgu", torch.stack(of_q), torch.stack(of_k)) / K**0.5
        seen = [row.x[: block[0] + 1] if causal else row.x[list(block)] for block in blocks]
        summary = torch.stack([tokens.sum(0) for tokens in seen])
        if options["sort_net"] == "mlp":
            summary = linear(params, "sort_net.hidden", summary).clamp_min(0)
        return linear(params, "sort_net.out", summary).reshape(N, H, -1)[:, :, :N].transpose(0, 1)

    iterations = None if causal else options["num_iterations"]
    S = sorting(block_scores() / options["temperature"], iterations)
    one = torch.eye(T, dtype=row.x.dtype, device=row.x.device)
    slots = dict[tuple[int, int], list[Tensor]]()
    for h in range(H):
        for g in range(N):  # the columns of block g of the sorted keys, as weights over tokens
            slots[h, g] = []
            for c in range(C):
                sources = [u for u in range(N) if c < len(blocks[u]) and (u < g or not causal)]
                if sources:
                    parts = [S[h, g, u] * one[blocks[u][c]] for u in sources]
                    slots[h, g].append(torch.stack(parts).sum(0))

    def attended(h: int, i: int, mixtures: list[Tensor]) -> Tensor:
        """Weights over tokens [T] of a softmax over slots, each a mixture of tokens."""
        matrix = torch.stack(mixtures)
        return (matrix @ k[:, h] @ q[i, h] / K**0.5).softmax(0) @ matrix

    def weights_of(h: int, i: int) -> Tensor:
        g = i // C
        if options["sort_cut"] is not None:
            kept = range(min(options["sort_cut"], N))
            return attended(h, i, [slot for s in kept for slot in slots[h, s]])
        near = slots[h, g]
        own = [one[j] for j in blocks[g] if j <= i or not causal]
        parts = [near + own] if options["join"] == "joint" else [own, near]
        if options["mixture"]:
            parts.append([*one[: i + 1 if causal else T]])
        return torch.stack([attended(h, i, part) for part in parts if part]).sum(0)

    return attend(params, row, v, lambda h, i: dict(enumerate(weights_of(h, i))))


def sorting(scores: Tensor, iterations: int | None) -> Tensor:
    """[H N N]; without iterations a softmax over earlier blocks."""
    if iterations is None:
        earlier = torch.zeros_like(scores)
        for g in range(1, len(scores[0])):
            earlier[:, g, :g] = scores[:, g, :g].softmax(-1)
        return earlier
    for _ in range(iterations):
        scores = scores - scores.logsumexp(2, keepdim=True)
        scores = scores - scores.logsumexp(1, keepdim=True)
    return scores.exp()
