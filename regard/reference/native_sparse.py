"""Oracle of `native_sparse` (arXiv 2502.11089): means of whole blocks, the blocks that they choose, a window, and three gates."""

from regard.reference._rows import attend, heads, linear, oracle, softmax as softmax_of


@oracle
def native_sparse(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    C, count = options.get("block_size", 32), options.get("top_k", 8)
    q, k, v = heads(params, row)
    size = row.H * q.shape[2] // len(params["heads.key.weight"])  # heads that share keys
    gates = linear(params, "gate", row.x).sigmoid().reshape(row.T, row.H, 3)

    def over(h, i, keys):
        """{places: mean key of them} -> weights"""
        return softmax_of({at: q[i, h] @ k[list(at), h].mean(0) / q.shape[2] ** 0.5 for at in keys})

    def weigh(h, i):
        blocks = [tuple(range(at, min(at + C, i + 1))) for at in range(0, i + 1, C)]
        whole = [at for at in blocks if len(at) == C]
        shares = [over(h // size * size + other, i, whole) for other in range(size)]

        def order(b):
            forced = b == 0 or b >= len(blocks) - 2
            return forced, 0 if forced else sum(w[blocks[b]].item() for w in shares), b

        best = sorted(range(len(blocks)), key=order)[-count:]
        chosen = [(j,) for b in best for j in blocks[b]]
        near = [(j,) for j in range(i + 1)][-options.get("window_size", 128) :]
        total = dict.fromkeys(range(i + 1), 0 * gates[i, h, 0])
        for gate, keys in zip(gates[i, h], (whole, chosen, near), strict=True):
            for at, w in over(h, i, keys).items():
                total |= {j: total[j] + gate * w / len(at) for j in at}
        return total

    return attend(params, row, v, weigh)
