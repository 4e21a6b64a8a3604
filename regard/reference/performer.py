"""Oracle of `performer` (arXiv 2009.14794): A_ij = phi(q_i) phi(k_j), rows divided by their sum."""

import torch
from torch import Tensor

from regard.reference._rows import attend, heads, oracle


@oracle
def performer(params, options, row):
    """-> (y [B T D], weights [B H T S])

    Causal features are those of the paper, exp(e - constant), e = w a - |a|^2 / 2, whose constant cancels. Otherwise the
    largest exponent of a query's features, or of all keys' features, is subtracted and 1e-6 added, which keeps it from
    cancelling: the paper has neither, the published code both, with the largest w a in the place of the largest e.
    """
    kind = options["features"]
    exponential = kind != "relu" and not callable(kind)
    published = options["stabiliser"] == "published"
    eps = 0.0 if row.causal else 1e-6

    def raw(a: Tensor, h: int) -> tuple[Tensor, Tensor]:
        """a [n K]: exponents, or for relu and a function f the features themselves, and the numbers whose largest is subtracted."""
        a = a / a.shape[1] ** 0.25
        wa = a @ params["projection.w"][h if options["per_head"] else 0].T
        if not exponential:
            f = (wa.clamp_min(0) if kind == "relu" else kind(wa)) + 1e-3
            return f, f
        if kind == "hyperbolic":
            wa = torch.cat([wa, -wa], 1)
        e = wa - (a**2).sum(1, keepdim=True) / 2
        return e, wa if published else e

    q, k, v = heads(params, row, turn=options)
    phi_k = []
    for h in range(row.H):
        e_k, peaks = raw(k[:, h], h)
        phi_k.append((e_k - peaks.max()).exp() + eps if exponential else e_k)

    def weigh(h, i):
        e_q, peaks = raw(q[i : i + 1, h], h)
        phi_q = (e_q - peaks.max()).exp() + eps if exponential else e_q
        of_keys = phi_k[h].unbind()
        A = {j: phi_q[0] @ of_keys[j] for j in row.keys(h, i)}
        total = sum(A.values())
        return {j: a / total for j, a in A.items()}

    return attend(params, row, v, weigh)
