"""Softmax attention of one row over given sets of pairs, query by query; shared by the oracles of sparse patterns."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.reference._rotary import rope
from regard.reference._rows import Row, linear, run, softmax


def attend_over(
    pairs: Callable[[Row, int, int, int], bool],
    params: dict[str, Tensor],
    H: int,
    x: Tensor,
    *,
    external: Tensor | None = None,
    rotary: dict | None = None,
    **request,
) -> tuple[Tensor, Tensor | None]:
    """-> (y [B T D], weights [B H T E+T]); `pairs(row, h, i, j)` says whether the mechanism itself joins i and j.

    Global tokens see all and are seen by all; causality, padding and single pairs come on top. `external` [E D]: learned
    tokens that every query sees. `rotary`: options of `rope`, by which queries and keys are turned.
    """

    def mix_row(row: Row) -> tuple[Tensor, Tensor]:
        mixed, weights = heads_over(pairs, params, H, row, external=external, rotary=rotary)
        return linear(params, "heads.out", mixed), weights

    return run(mix_row, x, num_heads=H, **request)


def heads_over(
    pairs: Callable[[Row, int, int, int], bool],
    params: dict[str, Tensor],
    H: int,
    row: Row,
    *,
    of: str = "heads",
    external: Tensor | None = None,
    rotary: dict | None = None,
) -> tuple[Tensor, Tensor]:
    """-> (mixed [T D], before the output projection; weights [H T E+T])"""
    K = row.x.shape[-1] // H
    source = row.x if external is None else torch.cat([external, row.x])
    E = source.shape[0] - row.T
    q = linear(params, f"{of}.query", row.x).reshape(row.T, H, K)
    k = linear(params, f"{of}.key", source).reshape(E + row.T, H, K)
    v = linear(params, f"{of}.value", source).reshape(E + row.T, H, K)
    if rotary is not None:
        q, k = (
            torch.stack(
                [torch.stack([rope(z[t, h], t, **rotary) for h in range(H)]) for t in range(row.T)]
            )
            for z in (q, k)
        )
    weights = row.x.new_zeros(H, row.T, E + row.T)
    mixed = []
    for i in range(row.T):
        heads = []
        for h in range(H):
            scores: list[Tensor | None] = [q[i, h] @ k[e, h] * K**-0.5 for e in range(E)]
            for j in range(row.T):
                joined = pairs(row, h, i, j) or row.is_global[i] or row.is_global[j]
                use = joined and row.allowed[h][i][j]
                scores.append(q[i, h] @ k[E + j, h] * K**-0.5 if use else None)
            y = row.x.new_zeros(K)
            for j, w in enumerate(softmax(scores)):
                if w is not None:
                    weights[h, i, j] = w.detach()
                    y = y + w * v[j, h]
            heads.append(y)
        mixed.append(torch.cat(heads))
    return torch.stack(mixed), weights
