"""Oracle of `native_sparse` (arXiv 2502.11089): means of whole blocks, the blocks that they choose, a window, and three gates."""

import torch

from regard.reference._rows import attend, heads, linear, oracle, softmax as softmax_of


@oracle
def native_sparse(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    C, count = options.get("block_size", 32), options.get("top_k", 8)
    window = options.get("window_size", 128)
    q, k, v = heads(params, row)
    G = params["heads.key.weight"].shape[0] // q.shape[2]
    gates = linear(params, "gate", row.x).sigmoid().reshape(row.T, row.H, 3)
    means = {b: k[b * C : (b + 1) * C].mean(0) for b in range(row.S // C)}

    def over(h, i, keys):
        return softmax_of({j: q[i, h] @ key / q.shape[2] ** 0.5 for j, key in keys.items()})

    def compressed(h, i):
        return over(h, i, {b: z[h] for b, z in means.items() if (b + 1) * C <= i + 1})

    def importance(h, i, b):
        own, size = i // C, row.H // G
        if b in (0, own, own - 1):
            return True, 0.0, b
        sharing = range(h // size * size, (h // size + 1) * size)
        total = sum(compressed(other, i)[b].item() for other in sharing if (b + 1) * C <= i + 1)
        return False, total, b

    def weigh(h, i):
        blocks = sorted(range(i // C + 1), key=lambda b: importance(h, i, b))[-count:]
        near = {j: k[j, h] for j in range(max(0, i - window + 1), i + 1)}
        chosen = {j: k[j, h] for b in blocks for j in range(b * C, min((b + 1) * C, i + 1))}
        total = {j: torch.zeros_like(gates[i, h, 0]) for j in range(i + 1)}
        for b, w in compressed(h, i).items():
            for j in range(b * C, (b + 1) * C):
                total[j] = total[j] + gates[i, h, 0] * w / C
        for gate, keys in ((gates[i, h, 1], chosen), (gates[i, h, 2], near)):
            for j, w in over(h, i, keys).items():
                total[j] = total[j] + gate * w
        return total

    return attend(params, row, v, weigh)
