"""Agreement of explanations, as numbers: rank correlations, overlap of the largest, and gold word alignments."""

from collections.abc import Mapping
from itertools import combinations
from math import nan
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import ShapeError, TensorMap

Scores = Float[Tensor, "T"]
"""One number for each token."""


class Agreement(NamedTuple):
    """first, second: names. kendall, spearman: rank correlations, -1 to 1.

    overlap: the share of the k largest of one that are among those of the other, 0 to 1.
    """

    first: str
    second: str
    kendall: float
    spearman: float
    overlap: float


def agreement(scores: Mapping[str, Scores], *, k: int = 5) -> list[Agreement]:
    """Measures how far each two attributions of the same tokens agree; by magnitude for the overlap's k largest.

    A correlation with scores that are all equal is NaN. Raises ShapeError where the lengths differ.
    """
    lengths = {name: tuple(found.shape) for name, found in scores.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"agreement: scores must be vectors of one length, got {lengths}")
    return [
        Agreement(first, second, kendall(a, b), spearman(a, b), overlap(a, b, k=k))
        for (first, a), (second, b) in combinations(scores.items(), 2)
    ]


def kendall(a: Scores, b: Scores) -> float:
    """Kendall's tau-b, which corrects for ties: the correlation of the signs of all differences; NaN where a score is."""
    return _correlation(a, b, Tensor.flatten)


def spearman(a: Scores, b: Scores) -> float:
    """Correlation of ranks; ties share their mean rank. NaN where a score is."""
    return _correlation(a, b, lambda signs: signs.sum(1))


def overlap(a: Scores, b: Scores, *, k: int) -> float:
    """Share of the k tokens of largest magnitude in a that are among those in b; NaN where a score is."""
    if _lack(a, b):
        return nan
    k = min(k, len(a))
    left, right = (set(z.abs().topk(k).indices.tolist()) for z in (a, b))
    return len(left & right) / k


def _lack(*scores: Scores) -> bool:
    return any(z.isnan().any() for z in scores)


def _correlation(a: Scores, b: Scores, of: TensorMap) -> float:
    if _lack(a, b):
        return nan
    return torch.corrcoef(torch.stack([of(_signs(z)) for z in (a, b)]))[0, 1].item()


def _signs(z: Scores) -> Float[Tensor, "T T"]:
    """1 where a score is above another, -1 where it is below; their sum over the others grows as the rank, by two for each."""
    return (z[:, None] > z).double() - (z[:, None] < z).double()


# ---------------------------------------------------------------------- gold alignments


def count_links(
    found: Bool[Tensor, "*b T S"], asked: Bool[Tensor, "*b T S"]
) -> Int[Tensor, "3 *b"]:
    """Numbers of links that are both, were found, and were asked for; the error rate is a function of the three."""
    return torch.stack([links.sum((-2, -1)) for links in (found & asked, found, asked)])


def error_rate(counts: Int[Tensor, "3 *b"]) -> Float[Tensor, "*b"]:
    both, found, asked = counts.double()
    return 1 - 2 * both / (found + asked)


def alignment_error_rate(
    weights: Float[Tensor, "*b T S"], links: Bool[Tensor, "*c T S"]
) -> Float[Tensor, "*b"]:
    """Error rate of linking each target word with the source word of its largest weight, against gold links (all sure).

    Target words without weights link nothing; the rate is NaN where a weight is. Leading dimensions (heads, layers) are kept; there are T targets.
    Raises ShapeError where the dimensions of the links are not the last of the weights.
    """
    if weights.shape[-links.ndim :] != links.shape:
        raise ShapeError(
            f"alignment_error_rate: weights are {list(weights.shape)}, links {list(links.shape)}: links need one shape with the last of the weights"
        )
    best = torch.zeros_like(weights, dtype=torch.bool)
    best = best.scatter(-1, weights.argmax(-1, keepdim=True), True)
    best = best & (weights != 0).any(-1, keepdim=True)
    rate = error_rate(count_links(best, links.expand_as(best)))
    return rate.masked_fill(weights.isnan().any(-1).any(-1), nan)
