"""Oracle of `linear` (arXiv 2006.16236): A_ij = phi(q_i) phi(k_j), rows divided by their sum + 1e-6.

Rotary positions turn features, after which rows are divided by the sum of those that were not turned (arXiv 2104.09864, 3.3).
"""

from torch.nn.functional import elu, relu, softplus

from regard.reference._rotary import turned
from regard.reference._rows import attend, heads, oracle

MAPS = {
    "elu_plus_one": lambda a: elu(a) + 1,
    "relu": relu,
    "squared_relu": lambda a: relu(a) ** 2,
    "softplus": softplus,
}


@oracle
def linear(params, options, row):
    """-> (y [B T D], weights [B H T S])"""
    kind = options["feature_map"]
    phi = MAPS.get(kind, kind)
    q, k, v = heads(params, row)
    q, k = phi(q), phi(k)
    at_q, at_k = turned(q, options), turned(k, options)

    def weigh(h, i):
        keys = row.keys(h, i)
        total = sum(q[i, h] @ k[j, h] for j in keys) + 1e-6
        return {j: at_q[i, h] @ at_k[j, h] / total for j in keys}

    return attend(params, row, v, weigh)
