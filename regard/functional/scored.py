"""Attention by any score: weights from scores, and values mixed by them, one tile of queries at a time."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.rows import TILE, Impl, masked_softmax, ranged, sizes_of, tiled, visible_keys

Pairs = Callable[[Tensor, Tensor], Tensor]  # q [.. T A], k [.. S C] -> scores [.. T S]
Normaliser = Literal["softmax", "sigmoid", "none"]


def dot_product(q: Float[Tensor, "*b T K"], k: Float[Tensor, "*b S K"]) -> Float[Tensor, "*b T S"]:
    """q . k"""
    q, k = ranged(q, k)
    return q @ k.transpose(-1, -2)


def additive_score(
    q: Float[Tensor, "*b T A"], k: Float[Tensor, "*b S A"], v: Float[Tensor, "*c A"]
) -> Float[Tensor, "*b T S"]:
    """v . tanh(q + k), of queries and keys that were projected (Bahdanau et al. 2014, arXiv 1409.0473)."""
    return (torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) @ v[..., None, :, None]).squeeze(-1)


def scored_attention(
    q: Float[Tensor, "B H T A"],
    k: Float[Tensor, "B H S C"],
    v: Float[Tensor, "B H S V"],
    *,
    pairs: Pairs = dot_product,
    mask: Mask = OPEN,
    normaliser: Normaliser = "softmax",
    width: int = 1,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """sum_j w_ij v_j with weights of the scores pairs(q, k); a query without an allowed key gives zero.

    normaliser: "softmax" over the allowed keys, or each weight on its own, "sigmoid" or the score itself ("none").
    width: numbers that `pairs` holds for each pair; tiles are that much smaller.
    """
    T, S = q.shape[2], k.shape[2]

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        cols = visible_keys(mask, T, S, rows)
        allowed = mask.dense(T, S, device=q.device, rows=rows, cols=cols)
        return normalise(pairs(q, k[:, :, cols]), allowed, normaliser).to(v.dtype) @ v[:, :, cols]

    tile = max(1, 2 * sizes_of(impl, tile=TILE)["tile"] // (width + 1))
    return tiled(some, tile, q, k, v)


def normalise(
    scores: Float[Tensor, "*b T S"], allowed: Bool[Tensor, "*c S"], normaliser: Normaliser
) -> Float[Tensor, "*b T S"]:
    """Weights from scores; zero where a pair is not allowed."""
    if normaliser == "softmax":
        return masked_softmax(scores, allowed)
    weights = scores.sigmoid() if normaliser == "sigmoid" else scores
    return torch.where(allowed, weights, weights.new_zeros(()))
