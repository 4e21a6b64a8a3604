"""Softmax attention over given sets of pairs, query by query; shared by the oracles of sparse patterns."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.reference._rotary import turned
from regard.reference._rows import Params, Row, linear, mix, of_groups, softmax


def attend_over(
    pairs: Callable[[int, int, int], bool], params: Params, H: int, row: Row, **given
) -> tuple[Tensor, Tensor]:
    """-> (y [T D], weights [H T E+T]), the rest given to `heads_over`."""
    mixed, weights = heads_over(pairs, params, H, row, **given)
    return linear(params, "heads.out", mixed), weights


def heads_over(
    pairs: Callable[[int, int, int], bool],
    params: Params,
    H: int,
    row: Row,
    *,
    of: str = "heads",
    external: Tensor | None = None,
    options: dict,
) -> tuple[Tensor, Tensor]:
    """-> (mixed [T D], before the output projection; weights [H T E+T]); `pairs(h, i, j)`: the pattern's own pairs.

    Global tokens see all and are seen by all; causality, padding and single pairs come on top. `external` [E D]: learned
    tokens that every query sees. `options`: the mixer's, with its positions.
    """
    K = params[f"{of}.query.weight"].shape[0] // H
    source = row.x if external is None else torch.cat([external, row.x])
    E = source.shape[0] - row.T
    q = linear(params, f"{of}.query", row.x).reshape(row.T, H, K)
    k, v = (of_groups(linear(params, f"{of}.{name}", source), H, K) for name in ("key", "value"))
    q, k = turned(q, options), turned(k, options)

    def weigh(h: int, i: int) -> dict[int, Tensor]:
        tokens = [
            E + j for j in row.keys(h, i) if pairs(h, i, j) or row.is_global[i] or row.is_global[j]
        ]
        seen = [*range(E), *tokens]
        return softmax(dict(zip(seen, k[seen, h] @ q[i, h] * K**-0.5, strict=True)))

    return mix(row, H, v, weigh)
