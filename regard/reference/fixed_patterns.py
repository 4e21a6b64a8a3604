"""Oracle of `fixed_patterns` (arXiv 2002.10260): explicit weight of every pair of positions."""

import torch
from torch import Tensor

from regard.reference._rows import Row, linear, run, softmax


def weight(pattern: str, i: int, j: int, n: int) -> float:
    """Unnormalised weight of key j for query i among n tokens."""
    if pattern == "current":
        return j == i
    if pattern == "previous":
        return j == max(i - 1, 0)
    if pattern == "next":
        return j == min(i + 1, n - 1)
    if pattern == "left":
        return (j + 1) ** 3 * (j <= i - 2) if i >= 2 else j == 0
    if pattern == "right":
        return (n - j) ** 3 * (j >= i + 2) if i <= n - 3 else j == n - 1
    if pattern == "end":
        return (j + 1) ** 3
    if pattern == "start":
        return (n - j) ** 3
    assert pattern == "last"
    return j == n - 1


def fixed_patterns(
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
    patterns = options["patterns"]
    if patterns is None:
        seven = ("current", "previous", "next", "left", "right", "end", "start")
        patterns = seven[: H - 1]

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        T, F = row.T, len(patterns)
        v = linear(params, "values.value", row.x).reshape(T, H, K)
        if F < H:
            q = linear(params, "query", row.x).reshape(T, H - F, K)
            k = linear(params, "key", row.x).reshape(T, H - F, K)
        weights = x.new_zeros(H, T, T)
        mixed = []
        for i in range(T):
            heads = []
            for h in range(H):
                keys = [j for j in range(T) if row.allowed[h][i][j]]
                if h < F:
                    raw = {j: float(weight(patterns[h], i, j, T)) for j in keys}
                    total = sum(raw.values()) or 1.0
                    used = [x.new_tensor(raw[j] / total) if j in keys else None for j in range(T)]
                else:
                    scores = [q[i, h - F] @ k[j, h - F] / K**0.5 for j in range(T)]
                    used = softmax([scores[j] if j in keys else None for j in range(T)])
                y = x.new_zeros(K)
                for j, w in enumerate(used):
                    if w is not None:
                        weights[h, i, j] = w.detach()
                        y = y + w * v[j, h]
                heads.append(y)
            mixed.append(torch.cat(heads))
        return linear(params, "values.out", torch.stack(mixed)), weights

    return run(mix_row, x, num_heads=H, causal=causal, valid=valid, pairwise=pairwise)
