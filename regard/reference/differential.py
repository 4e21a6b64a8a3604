"""Oracle of `differential` (arXiv 2410.05258): two softmax maps, and their difference."""

import math

from torch.nn.functional import rms_norm

from regard.reference._rows import linear, mix, of_groups, oracle, products, softmax


@oracle
def differential(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    H, first = row.H, options["form"] == "v1"
    V = row.x.shape[1] // H
    K = V // (1 + first)
    q = linear(params, "query", row.x).view(row.T, H, 2 * K)
    k, v = (of_groups(linear(params, name, row.context), H, V) for name in ("key", "value"))
    if first:
        least = 0.8 - 0.6 * math.exp(-0.3 * options["layer"])
        a, b, c, d = params["factors.weight"]
        share = ((a @ b).exp() - (c @ d).exp() + least).expand(row.T, H)
    else:
        share = linear(params, "share", row.x).sigmoid()

    def weigh(h, i):
        keys = row.keys(h, i)
        one = softmax(products(q[..., :K], k[..., :K], h, i, keys))
        other = softmax(products(q[..., -K:], k[..., -K:], h, i, keys))
        return {j: w - share[i, h] * other[j] for j, w in one.items()}

    mixed, weights = mix(row, v, weigh)
    if first:
        mixed = (1 - least) * rms_norm(mixed.view(row.T, H, V), (V,), eps=1e-5).flatten(1)
    return linear(params, "out", mixed), weights
