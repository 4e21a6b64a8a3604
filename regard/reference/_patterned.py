"""Softmax attention over given sets of pairs, query by query; shared by the oracles of sparse patterns."""

from collections.abc import Callable

from torch import Tensor

from regard.reference._rows import (
    Numbers,
    Params,
    Row,
    beside_sink,
    heads,
    mix,
    products,
    projected,
)

Pairs = Callable[[int, int, int], bool]  # head, query, key -> True if the pattern has the pair


def attend_over(pairs: Pairs, params: Params, options: dict, row: Row) -> tuple[Tensor, Tensor]:
    """-> (y [T D], weights [H T E+T])"""
    mixed, weights = heads_over(pairs, params, options, row)
    return projected(params, row, mixed), weights


def heads_over(
    pairs: Pairs, params: Params, options: dict, row: Row, of: str = "heads"
) -> tuple[Tensor, Tensor]:
    """-> (mixed [T D], before the output projection; weights [H T E+T]); `pairs(h, i, j)`: the pattern's own pairs.

    Global tokens see all and are seen by all; causality, padding and single pairs come on top, and learned tokens
    `external`, where there are any, are seen by every query.
    """
    q, k, v = heads(params, row, of=of, external=params.get("external"), turn=options)
    E = len(k) - row.T

    def weigh(h: int, i: int) -> Numbers:
        tokens = [
            E + j for j in row.keys(h, i) if pairs(h, i, j) or row.is_global[i] or row.is_global[j]
        ]
        return beside_sink(products(q, k, h, i, [*range(E), *tokens]), params, options, h)

    return mix(row, v, weigh)
