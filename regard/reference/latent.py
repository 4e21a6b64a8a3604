"""Oracle of `latent` (arXiv 2405.04434), expanded: keys and values of every head from the latent."""

from regard.reference._rotary import rope
from regard.reference._rows import attend, linear, normed, oracle, softmax


@oracle
def latent(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    H = row.H
    L = len(params["latent.norm.weight"])
    R = len(params["latent.compress.weight"]) - L
    if "latent.query.weight" in params:
        q = linear(params, "latent.query", row.x)
    else:
        z = normed(params, "latent.query.1", linear(params, "latent.query.0", row.x))
        q = linear(params, "latent.query.2", z)
    q = q.view(row.T, H, -1)
    N = q.shape[2] - R
    both = linear(params, "latent.compress", row.context)
    c = normed(params, "latent.norm", both[:, :L])
    kv = linear(params, "latent.expand", c).view(row.S, H, -1)
    k, v = kv[..., :N], kv[..., N:]
    base = options["base"]

    def turned(tokens):
        if base is None:
            return tokens
        return [rope(z, t, base, options["pairing"]) for t, z in enumerate(tokens)]

    at_q, at_k = turned(q[..., N:]), turned(both[:, L:])

    def weigh(h, i):
        query = q[i, h, :N]
        tokens = k[:, h].unbind()
        found = {j: query @ tokens[j] + at_q[i][h] @ at_k[j] for j in row.keys(h, i)}
        return softmax({j: z / (N + R) ** 0.5 for j, z in found.items()})

    return attend(params, row, v, weigh, out="latent.out")
