"""Oracle of `nystrom` (arXiv 2102.03902): three softmaxes through means of tokens, and a filter over the values of each head."""

import torch

from regard.reference._rows import attend, heads, oracle


def means(z, count):
    """[T K] -> [min(count, T) K]: of runs of successive tokens."""
    used = min(count, len(z))
    runs = [[t for t in range(len(z)) if t * used // len(z) == run] for run in range(used)]
    return torch.stack([z[run].mean(0) for run in runs])


def inverse(A):
    Z = A.T / (A.abs().sum(0).max() * A.abs().sum(1).max())
    eye = torch.eye(len(A), dtype=A.dtype)
    for _ in range(6):
        Z = Z @ (13 * eye - A @ Z @ (15 * eye - A @ Z @ (7 * eye - A @ Z))) / 4
    return Z


@oracle
def nystrom(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    q, k, v = heads(params, row)
    count = options["num_landmarks"]
    size = options["conv_size"]
    maps = []
    for h in range(row.H):
        Q, K = q[:, h] / q.shape[2] ** 0.5, k[:, h]
        Ql, Kl = means(Q, count), means(K, count)
        W = (Q @ Kl.T).softmax(1) @ inverse((Ql @ Kl.T).softmax(1)) @ (Ql @ K.T).softmax(1)
        if size and not row.is_cross:
            for ahead, tap in enumerate(params["filters"][h], -(size // 2)):
                W = W + tap * torch.ones_like(W).tril(ahead).triu(ahead)  # one diagonal
        maps.append(W)
    return attend(params, row, v, lambda h, i: dict(enumerate(maps[h][i])))
