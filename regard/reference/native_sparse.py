"""Oracle of `native_sparse` (arXiv 2502.11089): one key of each whole block, the blocks that they choose, a window, and three gates."""

import torch
from torch.nn.functional import gelu

from regard.reference._rows import heads, linear, oracle, projected, softmax


@oracle
def native_sparse(params, options, row):
    """-> (y [B T D], weights [B H T S], or None where blocks are compressed by networks)"""
    C, count = options["block_size"], options["top_k"]
    learned = options["compress"] == "learned"
    q, k, v = heads(params, row)
    size = row.H * q.shape[2] // len(params["heads.key.weight"])  # heads that share keys
    gates = linear(params, "gate", row.x).sigmoid().reshape(row.T, row.H, 3)

    def one(z, places, which, block):
        """The key or value of these tokens [n K]; block: they are a whole one."""
        z = z[list(places)]
        if not (learned and block):
            return z.mean(0)
        name = f"compress.{which}"
        together = (z + params[f"{name}.place"]).flatten()
        return linear(params, f"{name}.out", gelu(linear(params, f"{name}.hidden", together)))

    def over(h, i, keys, block=False):
        """{places: one key of them} -> weights"""
        found = {at: q[i, h] @ one(k[:, h], at, 0, block) for at in keys}
        return softmax({at: z / q.shape[2] ** 0.5 for at, z in found.items()})

    mixed = []
    weights = row.x.new_zeros(row.H, row.T, row.S)
    for i in range(row.T):
        blocks = [tuple(range(at, min(at + C, i + 1))) for at in range(0, i + 1, C)]
        whole = [at for at in blocks if len(at) == C]
        for h in range(row.H):
            shares = [over(h // size * size + other, i, whole, True) for other in range(size)]
            forced = {0, len(blocks) - 2, len(blocks) - 1}
            order = [
                (b in forced, 0 if b in forced else sum(w[at].item() for w in shares), b)
                for b, at in enumerate(blocks)
            ]
            best = [b for *_, b in sorted(order)[-count:]]
            chosen = [(j,) for b in best for j in blocks[b]]
            near = [(j,) for j in range(i + 1)][-options["window_size"] :]
            y = 0 * v[i, h]
            for gate, keys in zip(gates[i, h], (whole, chosen, near), strict=True):
                for at, w in over(h, i, keys, keys is whole).items():
                    y = y + gate * w * one(v[:, h], at, 1, keys is whole)
                    weights[h, i, list(at)] += (gate * w / len(at)).detach()
            mixed.append(y)
    y = projected(params, row, torch.stack(mixed).reshape(row.T, -1))
    return y, None if learned else weights
