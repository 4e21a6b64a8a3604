"""Attention through windows, one for each query, placed by the mechanism (Luong et al. 2015, arXiv 1508.04025)."""

from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.functional.rows import TILE, Impl, masked_softmax, sizes_of, take_each, tiled
from regard.functional.scored import Pairs, dot_product


class Windows(NamedTuple):
    """Query i sees the keys start_i .. start_i + width - 1, as far as low <= key <= high_i, from 0 on where low is not given.

    With a centre, weights are multiplied by exp(-(j - centre)^2 / (2 sigma^2)).
    """

    start: Int[Tensor, "b h T"]
    width: int
    high: Int[Tensor, "d T"]
    low: Int[Tensor, "c"] | None = None
    centre: Float[Tensor, "B H T"] | None = None
    sigma: float = 1.0

    def rows(self, rows: slice) -> "Windows":
        """The windows of these queries."""
        centre = None if self.centre is None else self.centre[:, :, rows]
        return self._replace(start=self.start[:, :, rows], high=self.high[:, rows], centre=centre)


def luong_attention(
    q: Float[Tensor, "B H T A"],
    k: Float[Tensor, "B H S C"],
    v: Float[Tensor, "B H S V"],
    *,
    windows: Windows,
    pairwise: Bool[Tensor, "b h T S"] | None = None,
    pairs: Pairs = dot_product,
    renormalise: bool = False,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Softmax of the scores over each window, times its Gaussian if it has one; then the sum of values.

    renormalise: weights are divided by their sum after the Gaussian. A query without a key gives zero.
    """

    def attend(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        some = None if pairwise is None else pairwise[:, :, rows]
        weights, index = _weights(q, k, windows.rows(rows), some, pairs, renormalise)
        return (weights[..., None, :].to(v.dtype) @ take_each(v, index))[..., 0, :]

    return tiled(attend, sizes_of(impl, tile=TILE)["tile"], q, k, v)


def _weights(
    q: Tensor,
    k: Tensor,
    windows: Windows,
    pairwise: Tensor | None,
    pairs: Pairs,
    renormalise: bool,
) -> tuple[Float[Tensor, "B H T W"], Int[Tensor, "b h T W"]]:
    S = k.shape[2]
    j = windows.start[..., None] + torch.arange(windows.width, device=q.device)
    allowed = (j >= 0) & (j < S) & (j <= windows.high[:, None, :, None])
    if windows.low is not None:
        allowed = allowed & (j >= windows.low[:, None, None, None])
    index = j.clamp(0, S - 1).expand(*k.shape[:2], -1, -1)
    if pairwise is not None:
        allowed = allowed & pairwise.take_along_dim(index, 3)
    heads_last = rearrange(take_each(k, index), "b h t w c -> b t h w c")
    scores = pairs(rearrange(q, "b h t a -> b t h 1 a"), heads_last)
    weights = masked_softmax(rearrange(scores, "b t h 1 w -> b h t w"), allowed)
    if windows.centre is not None:
        apart = j - windows.centre[..., None]
        weights = weights * (-(apart**2) / (2 * windows.sigma**2)).exp().to(weights.dtype)
    if renormalise:
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total > 0, total, 1)
    return weights, index
