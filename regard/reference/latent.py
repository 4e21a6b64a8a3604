"""Oracle of `latent` (arXiv 2405.04434), expanded: keys and values of every head from the latent."""

from regard.reference._rotary import rope
from regard.reference._rows import attend, linear, normed, oracle, softmax


@oracle
def latent(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    H = row.H
    L = len(params["norm.weight"])
    R = len(params["compress.weight"]) - L
    z = row.x
    if "query_latent.weight" in params:
        z = normed(params, "query_norm", linear(params, "query_latent", z))
    q = linear(params, "query", z).view(row.T, H, -1)
    N = q.shape[2] - R
    both = linear(params, "compress", row.context)
    c, r = normed(params, "norm", both[:, :L]), both[:, L:]
    kv = linear(params, "expand", c).view(row.S, H, -1)
    k, v = kv[..., :N], kv[..., N:]
    turn = options["base"], options["pairing"]
    turned = (lambda z, i: z) if turn[0] is None else (lambda z, i: rope(z, i, *turn))

    def weigh(h, i):
        scores = {}
        for j in row.keys(h, i):
            scores[j] = q[i, h, :N] @ k[j, h]
            if R:
                scores[j] = scores[j] + turned(q[i, h, N:], i) @ turned(r[j], j)
            scores[j] = scores[j] / (N + R) ** 0.5
        return softmax(scores)

    return attend(params, row, v, weigh, out="out")
