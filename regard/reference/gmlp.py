"""Oracle of `gmlp` (arXiv 2105.08050): the spatial gating unit token by token, with the tiny attention of aMLP."""

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from regard.reference._rows import linear, oracle, softmax


@oracle
def gmlp(params, options, row):
    """-> (y [B T D], weights [B 1 T T], None with attention); global tokens change nothing where all see all."""
    K = options["attention_dim"]

    def spatial(i: int, j: int) -> Tensor:
        if options["toeplitz"]:
            return params["weight"][j - i + len(params["bias"]) - 1]
        return params["weight"][i, j]

    def tiny(i: int, keys: list[int]) -> Tensor:
        q, k, v = linear(params, "qkv", row.x).split(K, 1)
        w = softmax({j: q[i] @ k[j] / K**0.5 for j in keys})
        return linear(params, "tiny_out", sum((w[j] * v[j] for j in keys), row.x.new_zeros(K)))

    z = gelu(linear(params, "widen", row.x))
    half = z.shape[1] // 2
    gated = layer_norm(z[:, half:], (half,), params["norm.weight"], params["norm.bias"])
    weights = row.x.new_zeros(1, row.T, row.T)
    mixed = []
    for i in range(row.T):
        keys = row.keys(0, i)
        gate = params["bias"][i].expand(half)
        for j in keys:
            weights[0, i, j] = spatial(i, j).detach()
            gate = gate + spatial(i, j) * gated[j]
        if K is not None:
            gate = gate + tiny(i, keys)
        mixed.append(z[i, :half] * gate)
    return linear(params, "narrow", torch.stack(mixed)), weights if K is None else None
