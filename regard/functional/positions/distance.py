"""Scores from the distance between two tokens: ALiBi's slopes, T5's buckets, Transformer-XL's sinusoids."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OptionError, Queries, Weights


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8i/H), i = 1 .. H, for H a power of two; else those of the power of two below, filled up with every other
    slope of the one above (Press et al. 2021, arXiv 2108.12409, and its code).
    """
    low = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * i / low) for i in range(1, low + 1)]
    return slopes + [2 ** (-8 * i / (2 * low)) for i in range(1, 2 * low + 1, 2)][: num_heads - low]


def t5_bucket(
    distance: Int[Tensor, "*b"], *, num_buckets: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "*b"]:
    """Bucket of each distance (query position - key position) (Raffel et al. 2019, arXiv 1910.10683).

    With n buckets to a direction, |distance| < n/2 has a bucket of its own; the others grow geometrically up to
    max_distance, from where on there is one. Bidirectional: the second half of the buckets is for keys after the
    query. Else those keys, which a causal mask hides, fall into bucket 0.
    """
    borders = t5_borders(num_buckets, max_distance, bidirectional)
    away = distance.abs() if bidirectional else distance.clamp_min(0)
    bucket = torch.bucketize(away, constants(borders, away), right=True)
    return bucket + (distance < 0) * (num_buckets // 2) if bidirectional else bucket


def t5_borders(num_buckets: int, max_distance: int, bidirectional: bool) -> list[int]:
    """The smallest distance of each bucket but the first, in one direction; worked out exactly, never in float32."""
    n = num_buckets // 2 if bidirectional else num_buckets
    exact = n // 2
    if exact < 1 or max_distance <= exact:
        raise OptionError(
            f"t5: num_buckets ({num_buckets}) must leave two to a direction, and max_distance ({max_distance}) "
            f"exceed the {exact} distances that have a bucket of their own"
        )
    ratio = max_distance / exact
    grown = [exact * ratio ** (b / (n - exact)) for b in range(1, n - exact)]
    return [*range(1, exact + 1), *(math.ceil(border - 1e-9) for border in grown)]


def relative_scores(
    q: Queries, r: Float[Tensor, "N H K"], distance: Int[Tensor, "b T S"]
) -> Weights:
    """q_i . r_(i-j), where r holds distances -(N-1)/2 .. (N-1)/2 (Dai et al. 2019, arXiv 1901.02860).

    Each query meets each distance once, T N K, and its pairs are then looked up: no [T S K] is made. Distances out of
    range take the nearest.
    """
    every = torch.einsum("bhtk,nhk->bhtn", q, r)
    last = r.shape[0] - 1
    index = (distance + last // 2).clamp(0, last)
    return every.gather(-1, index[:, None].expand(*every.shape[:2], *index.shape[1:]))


def constants(values: Sequence[float], like: Tensor) -> Tensor:
    """These numbers, in the type and on the device of `like`; without a copy from the host, which no CUDA graph holds."""
    if like.device.type == "cpu":
        return like.new_tensor(values)
    return torch.stack([like.new_full((), value) for value in values])
