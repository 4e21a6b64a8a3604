"""Shared parts of the oracles of recurrent mixers: convolution, and the state token by token."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from regard.reference._rows import Params, Row, linear, of_groups


def low_rank(params: Params, name: str, x: Tensor) -> Tensor:
    return linear(params, f"{name}.1", linear(params, f"{name}.0", x))


def unit(z: Tensor) -> Tensor:
    """Unit vectors, as the released code has them."""
    return z / (z.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def decays(params: Params, row: Row) -> tuple[Tensor, Tensor]:
    """Steps softplus(W x + c) [T H], and what each leaves of the state: exp(-exp(A) step)."""
    step = softplus(linear(params, "decay.project", row.x) + params["decay.bias"])
    return step, (-params["decay.A_log"].exp() * step).exp()


def split(
    params: Params, row: Row, act: Callable[[Tensor], Tensor] | None, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k [T H K], v [T H V]: activation of the causal convolution, where there is one; head h shares the keys of its group."""
    parts = [linear(params, name, row.x) for name in ("query", "key", "value")]
    z = torch.cat(parts, 1)
    if "conv.weight" in params:
        taps = params["conv.weight"].T
        before = torch.cat([z.new_zeros(len(taps) - 1, z.shape[1]), z])
        z = sum(w * before[s : s + row.T] for s, w in enumerate(taps))
        z = silu(z + params.get("conv.bias", 0))
    elif act is not None:
        z = act(z)
    q, k, v = z.split([part.shape[1] for part in parts], 1)
    q, k = (of_groups(part, row.H, part.shape[1] // groups) for part in (q, k))
    return q, k, v.view(row.T, row.H, -1)


def scanned(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor | None = None) -> Tensor:
    """o [T V] of one head; q, k [T K], v [T V], a [T] or [T K]; b [T]: each token first erases what the state holds under its key."""
    S, rows = q.new_zeros(q.shape[1], v.shape[1]), []
    for t in range(len(q)):
        S = a[t].reshape(-1, 1) * S
        u = v[t] if b is None else b[t] * (v[t] - k[t] @ S)
        S = S + torch.outer(k[t], u)
        rows.append(q[t] @ S)
    return torch.stack(rows)


def all_heads(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """o [T H V], and the weights [H T T]: what unit values give."""
    units, heads = torch.eye(len(q), dtype=q.dtype), []
    for h in range(q.shape[1]):
        values = torch.cat([v[:, h], units], 1)
        heads.append(scanned(q[:, h], k[:, h], values, a[:, h], None if b is None else b[:, h]))
    o, weights = torch.stack(heads, 1).split([v.shape[2], len(q)], 2)
    return o, weights.transpose(0, 1)
