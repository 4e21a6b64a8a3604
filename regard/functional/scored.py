"""Attention by any score: weights from scores, and values mixed by them, one tile of queries at a time.

Over all keys, or over a window for each query that the mechanism places (Luong et al. 2015, arXiv 1508.04025).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import OPEN, Mask, Mixed, MixedTile, Values
from regard.functional.rows import (
    TILE,
    Impl,
    masked_softmax,
    ranged,
    take_each,
    tiled,
    upto,
    visible_keys,
)

Pairs = Callable[[Tensor, Tensor], Tensor]  # q [.. T A], k [.. S C] -> scores [.. T S]
Normaliser = Literal["softmax", "sigmoid", "none"]
Scores = Float[Tensor, "*b T S"]
Interaction = Literal["outer", "elementwise", "din_code", "none"]
"""Products of a key and a query: see `regard.nn.scores.ActivationUnit`."""


def dot_product(q: Float[Tensor, "*b T K"], k: Float[Tensor, "*b S K"]) -> Scores:
    """q . k"""
    q, k = ranged(q, k) if q.dtype == torch.float16 else (q, k)
    return q @ k.mT


def additive_score(
    q: Float[Tensor, "*b T A"], k: Float[Tensor, "*b S A"], v: Float[Tensor, "*c A"]
) -> Scores:
    """v . tanh(q + k), of queries and keys that were projected (Bahdanau et al. 2014, arXiv 1409.0473)."""
    return (torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) @ v[..., None, :, None]).squeeze(-1)


def pair_layer(
    q: Float[Tensor, "*b T K"],
    weight: Float[Tensor, "*c F N"],
    bias: Float[Tensor, "*c F"],
    interaction: Interaction,
) -> tuple[Float[Tensor, "*b T F K"], Float[Tensor, "*b T F"]]:
    """A and b, with which weight [k ; interaction(q, k) ; q] + bias is A k + b (Zhou et al. 2018, arXiv 1706.06978)."""
    K = q.shape[-1]
    if interaction == "din_code":
        of_query, of_key, difference, product = weight.split(K, -1)
        of_query = of_query + difference
        of_key = of_key - difference
    else:
        of_key, product, of_query = weight.split([K, weight.shape[-1] - 2 * K, K], -1)
    of_pair: Tensor | float = 0.0
    if interaction == "outer":
        of_pair = torch.einsum("...fkc,...tc->...tfk", product.unflatten(-1, (K, K)), q)
    elif interaction != "none":
        of_pair = product.unsqueeze(-3) * q.unsqueeze(-2)
    return of_key.unsqueeze(-3) + of_pair, q @ of_query.mT + bias.unsqueeze(-2)


def scored_attention(
    q: Float[Tensor, "B H T A"],
    k: Float[Tensor, "B H S C"],
    v: Values,
    *,
    pairs: Pairs = dot_product,
    mask: Mask = OPEN,
    normaliser: Normaliser = "softmax",
    width: int = 1,
    impl: Impl = "auto",
) -> Mixed:
    """sum_j w_ij v_j with weights of the scores pairs(q, k); a query without an allowed key gives zero.

    normaliser: "softmax" over the allowed keys, or each weight on its own, "sigmoid" or the score itself ("none").
    width: numbers that `pairs` holds for each pair; tiles are that much smaller.
    """
    T, S = q.shape[2], k.shape[2]

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> MixedTile:
        cols = visible_keys(mask, T, S, rows)
        allowed = mask.dense(T, S, device=q.device, rows=rows, cols=cols)
        return normalise(pairs(q, k[:, :, cols]), allowed, normaliser).type_as(v) @ v[:, :, cols]

    tile = max(1, 2 * (getattr(impl, "tile", None) or TILE) // (width + 1))
    return tiled(some, tile, q, k, v)


def normalise(scores: Scores, allowed: Bool[Tensor, "*c S"], normaliser: Normaliser) -> Scores:
    """Weights from scores; zero where a pair is not allowed."""
    if normaliser == "softmax":
        return masked_softmax(scores, allowed)
    weights = scores.sigmoid() if normaliser == "sigmoid" else scores
    return weights.masked_fill(~allowed, 0)


class Windows(NamedTuple):
    """Query i sees the keys start_i .. start_i + width - 1, as far as low <= key <= high_i, from 0 on where low is not given.

    With a centre, weights are multiplied by exp(-(j - centre)^2 / (2 sigma^2)).
    """

    start: Int[Tensor, "#B #H T"]
    width: int
    high: Int[Tensor, "#B T"]
    low: Int[Tensor, "#B"] | None = None
    centre: Float[Tensor, "B H T"] | None = None
    sigma: float = 1.0

    def rows(self, rows: slice) -> "Windows":
        """The windows of these queries."""
        centre = None if self.centre is None else self.centre[:, :, rows]
        return self._replace(start=self.start[:, :, rows], high=self.high[:, rows], centre=centre)


def luong_attention(
    q: Float[Tensor, "B H T A"],
    k: Float[Tensor, "B H S C"],
    v: Values,
    *,
    windows: Windows,
    pairwise: Bool[Tensor, "#B #H T S"] | None = None,
    pairs: Pairs = dot_product,
    renormalise: bool = False,
    impl: Impl = "auto",
) -> Mixed:
    """Softmax of the scores over each window, times its Gaussian if it has one; then the sum of values.

    renormalise: weights are divided by their sum after the Gaussian. A query without a key gives zero.
    """

    def attend(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> MixedTile:
        some = None if pairwise is None else pairwise[:, :, rows]
        weights, index = _weights(q, k, windows.rows(rows), some, pairs, renormalise)
        return (weights[..., None, :].type_as(v) @ take_each(v, index))[..., 0, :]

    return tiled(attend, impl, q, k, v)


def _weights(
    q: Tensor, k: Tensor, windows: Windows, pairwise: Tensor | None, pairs: Pairs, renormalise: bool
) -> tuple[Float[Tensor, "B H T W"], Int[Tensor, "b h T W"]]:
    S = k.shape[2]
    j = windows.start[..., None] + upto(windows.width, q)
    allowed = (j >= 0) & (j < S) & (j <= windows.high[:, None, :, None])
    if windows.low is not None:
        allowed = allowed & (j >= windows.low[:, None, None, None])
    index = j.clamp(0, S - 1).expand(*k.shape[:2], -1, -1)
    if pairwise is not None:
        allowed = allowed & pairwise.take_along_dim(index, 3)
    heads_last = rearrange(take_each(k, index), "b h t w c -> b t h w c")
    scores = pairs(rearrange(q, "b h t a -> b t h 1 a"), heads_last)
    scores = rearrange(scores, "b t h 1 w -> b h t w")
    if windows.centre is None:
        return masked_softmax(scores, allowed), index
    log_gaussian = -((j - windows.centre[..., None]) ** 2) / (2 * windows.sigma**2)
    if renormalise:  # a far window's weights would all be zero
        least = torch.finfo(scores.dtype).min / 2
        scores = scores + log_gaussian.type_as(scores).clamp_min(least)
        return masked_softmax(scores, allowed), index
    weights = masked_softmax(scores, allowed)
    return weights * log_gaussian.exp().type_as(weights), index
