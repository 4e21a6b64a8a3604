"""Oracle of `scalar_decay` (arXiv 2307.08621, 2401.04658, 2405.21060): the state, token by token, with one decay a head."""

import torch
from torch.nn.functional import silu

from regard.reference._rotary import turned
from regard.reference._rows import linear, normed, oracle
from regard.reference._scan import all_heads, decays, split


@oracle
def scalar_decay(params, options, row):
    """-> (y [B T D], weights [B H T T])"""
    form, H = options["form"], row.H
    q, k, v = split(
        params, row, None if form == "retention" else silu, 1 if form == "mamba2" else H
    )
    gate = linear(params, "gate", row.x)
    head = torch.arange(H, dtype=q.dtype).expand(row.T, H)
    if form == "mamba2":
        step, a = decays(params, row)
        o, weights = all_heads(q, k * step[..., None], v, a)
        o = o + params["skip"][:, None] * v
        weights = weights + params["skip"][:, None, None] * torch.eye(row.T, dtype=q.dtype)
        y = normed(params, "norm", o.flatten(1) * silu(gate))
    elif form == "lightning":
        o, weights = all_heads(q, k, v, (-(2 ** (-8 * (head + 1) / H))).exp())
        y = normed(params, "norm", o.flatten(1)) * gate.sigmoid()
    else:
        q, k = (turned(z, {"position": "rotary"}) for z in (q, k))
        o, weights = all_heads(q / q.shape[2] ** 0.5, k, v, 1 - 2 ** (-5 - head))
        y = normed(params, "norm", o).flatten(1) * silu(gate)
    return linear(params, "out", y), weights
