"""Statistics of a head: entropy, distance, shares of usual places, and how alike the heads of a layer are."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import ShapeError, Weights

PerHead = Float[Tensor, "B H"]


class HeadStatistics(NamedTuple):
    """Means over the queries that see anything, [B H] each; shares of a row's weight, distances in tokens.

    entropy is in nats. Without a diagonal (a context), distance and the first three shares are NaN.
    """

    entropy: PerHead
    distance: PerHead
    self: PerHead
    previous: PerHead
    next: PerHead
    first: PerHead


def head_statistics(weights: Weights, *, cross: bool = False) -> HeadStatistics:
    """Statistics of weights, or of an influence; rows are normalised, of magnitudes where there are signs.

    cross: keys are other tokens than the queries. Raises ShapeError where there are other than T keys otherwise.
    """
    T, S = weights.shape[2:]
    if not cross and T != S:
        raise ShapeError(
            f"head_statistics: weights must be square, got {T} queries and {S} keys. Leave columns of external tokens out, or pass cross=True."
        )
    shares, seen = _shares(weights)
    count = seen.sum(-1).clamp(min=1)

    def mean(per_query: Float[Tensor, "B H T"]) -> PerHead:
        return (per_query * seen).sum(-1) / count

    entropy = mean(-torch.xlogy(shares, shares).sum(-1))
    first = mean(shares[..., 0])
    place = torch.arange(S, device=weights.device)
    unknown = weights.new_full(weights.shape[:2], torch.nan)
    if cross:
        return HeadStatistics(entropy, unknown, unknown, unknown, unknown, first)
    far = (place[:, None] - place).abs().to(shares)

    def along(offset: int) -> Float[Tensor, "B H T"]:
        """Each query's share of the key `offset` after it."""
        near = shares.diagonal(offset, 2, 3)
        return torch.nn.functional.pad(near, (max(-offset, 0), max(offset, 0)))

    return HeadStatistics(
        entropy=entropy,
        distance=mean((shares * far).sum(-1)),
        self=mean(along(0)),
        previous=mean(along(-1)),
        next=mean(along(1)),
        first=first,
    )


def head_divergence(weights: Weights) -> Float[Tensor, "B H H"]:
    """Jensen-Shannon divergence of each two heads, a mean over queries: 0 (alike) to log 2 nats; rows as in `head_statistics`."""
    shares, seen = _shares(weights)
    own = torch.xlogy(shares, shares).sum(-1)
    count = seen.any(1).sum(-1).clamp(min=1)[:, None]
    rows = []
    for head in range(weights.shape[1]):
        between = (shares + shares[:, head : head + 1]) / 2
        both = (own + own[:, head : head + 1]) / 2 - torch.xlogy(between, between).sum(-1)
        rows.append(both.sum(-1) / count)
    return torch.stack(rows, 1).clamp(0, math.log(2))


def _shares(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of magnitudes that sum to 1, and the queries that see anything."""
    sizes = below_one(weights.to(torch.promote_types(weights.dtype, torch.float32)), -1)
    total = sizes.sum(-1, keepdim=True)
    return sizes / total.clamp(min=torch.finfo(sizes.dtype).tiny), total[..., 0] > 0


def below_one(weights: Tensor, *axes: int) -> Tensor:
    """Magnitudes over the largest along these axes, so that no sum of them is infinite, and none is lost."""
    sizes = weights.abs()
    return sizes / sizes.amax(axes, keepdim=True).clamp(min=torch.finfo(sizes.dtype).tiny)
