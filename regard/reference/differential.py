"""Oracle of `differential` (arXiv 2410.05258): two softmax maps, and their difference."""

import math

from torch.nn.functional import rms_norm

from regard.reference._rows import linear, mix, of_groups, oracle, products, softmax


@oracle
def differential(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    H, first = row.H, options["form"] == "v1"
    V = row.x.shape[1] // H
    K = V // 2 if first else V
    q = linear(params, "query", row.x).view(row.T, H, 2, K)
    k = linear(params, "key", row.context)
    v = of_groups(linear(params, "value", row.context), H, V)
    if first:
        k = of_groups(k, H, 2 * K).reshape(row.S, H, 2, K)
        least = 0.8 - 0.6 * math.exp(-0.3 * options["layer"])
        a, b, c, d = params["factors"]
        share = ((a @ b).exp() - (c @ d).exp() + least).expand(row.T, H)
    else:
        k = of_groups(k, H, K)[:, :, None].expand(row.S, H, 2, K)
        share = linear(params, "share", row.x).sigmoid()
    (q1, q2), (k1, k2) = q.unbind(2), k.unbind(2)

    def weigh(h, i):
        keys = row.keys(h, i)
        one = softmax(products(q1, k1, h, i, keys))
        other = softmax(products(q2, k2, h, i, keys))
        factor = share[i, h]
        return {j: w - factor * other[j] for j, w in one.items()}

    mixed, weights = mix(row, v, weigh)
    if first:
        mixed = (1 - least) * rms_norm(mixed.view(row.T, H, V), (V,), eps=1e-5).flatten(1)
    return linear(params, "out", mixed), weights
