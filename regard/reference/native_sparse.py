"""Oracle of `native_sparse` (arXiv 2502.11089): one key of each whole block, the blocks that they choose, a window, and three gates."""

import torch
from torch.nn.functional import gelu

from regard.reference._rows import attend, heads, linear, oracle, products, softmax


@oracle
def native_sparse(params, options, row):
    """-> (y [B T D], weights [B H T S], or None where blocks are compressed by networks)"""
    C, learned, S = options["block_size"], options["compress"] == "learned", row.S
    q, k, v = heads(params, row)
    share = row.H // (options["num_kv_heads"] or row.H)  # heads of the same keys
    gates = linear(params, "gate", row.x).sigmoid().reshape(row.T, -1, 3)

    def with_blocks(z, name):
        """z [S H K], and after it one key or value of each whole block [N H K]."""
        blocks = z[: S // C * C].unflatten(0, (-1, C))
        if learned:
            together = (blocks.transpose(1, 2) + params[f"{name}.place"]).flatten(2)
            hidden = gelu(linear(params, f"{name}.hidden", together))
            blocks = linear(params, f"{name}.out", hidden)[:, None]
        return torch.cat([z, blocks.mean(1)])

    keys, values = with_blocks(k, "compress.0"), with_blocks(v, "compress.1")

    def weigh(h, i):
        def over(h, places):
            return softmax(products(q, keys, h, i, places))

        own, whole = i // C, range(S, S + (i + 1) // C)
        alike = [over(one, whole) for one in range(row.H) if one // share == h // share]
        others = sorted(range(1, own - 1), key=lambda b: (sum(of[S + b] for of in alike), b))
        best = [*others, *sorted({0, max(own - 1, 0), own})][-options["top_k"] :]
        chosen = [j for j in range(i + 1) if j // C in best]
        near = range(i + 1)[-options["window_size"] :]
        found: dict = {}
        for branch, places in enumerate((whole, chosen, near)):
            for j, w in over(h, places).items():
                found[j] = found.get(j, 0) + gates[i, h, branch] * w
        return found

    y, weights = attend(params, row, values, weigh)
    weights[..., : S // C * C] += weights[..., S:].repeat_interleave(C, 2) / C
    return y, None if learned else weights[..., :S]
