"""Positions that a mixer takes into its scores. Three small protocols, by `kind`:

    rotation:  rotate(x [B H T K], position [T] or [B T]) -> x         applied to queries and keys
    bias:      bias(query_position [b T], key_position [b S], dtype) -> [b H T S]      added to the scores
    scores:    scores(q, k, query_position [b T], key_position [b S]) -> [B H T S]     in the place of q k^T, unscaled

Positions count valid tokens from 0 and go on where a streaming state stopped. What is returned for an absent token is
finite and means nothing: masks come after.
"""

from abc import abstractmethod
from functools import partial

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import Above0, Keys, Positions, Queries, Weights, check_divisible
from regard.functional.positions.distance import (
    alibi_slopes,
    constants,
    relative_scores,
    t5_borders,
    t5_bucket,
)
from regard.functional.positions.rotary import Pairing, rotate, sinusoid
from regard.positions.base import Position


class Rotary(Position):
    """Su et al. 2021, arXiv 2104.09864; no parameters, any length.

    Args:
        base: longest wavelength of the sinusoids, in units of 2 pi tokens
        pairing: channels that are turned together: of both halves, or neighbours
        channels: first channels of a head, which alone are turned; None: all
    """

    name = "rotary"
    kind = "rotation"

    def __init__(
        self, *, base: Above0 = 10000.0, pairing: Pairing = "half", channels: int | None = None
    ):
        super().__init__()
        self.base = base
        self.pairing = pairing
        self.channels = channels

    def rotate(self, x: Queries, position: Int[Tensor, "*b T"]) -> Queries:
        turned = x[..., : self.channels]
        still = x[..., self.channels or x.shape[-1] :]
        turned = rotate(turned, position, self.base, self.pairing)
        return torch.cat([turned, still], -1) if still.shape[-1] else turned


class BiasPosition(Position):
    """Base of the kinds that add a bias to the scores."""

    kind = "bias"

    @abstractmethod
    def bias(
        self,
        query_position: Positions,
        key_position: Int[Tensor, "b S"],
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "b H T S"]:
        """The bias of these pairs."""


class Alibi(BiasPosition):
    """-slope_h |i - j| (Press et al. 2021, arXiv 2108.12409); no parameters, any length.

    The paper's for keys before the query, and its mirror image for keys after.
    """

    name = "alibi"

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.num_heads = num_heads

    def bias(self, query_position, key_position, dtype=torch.float32):
        away = _distance(query_position, key_position).abs()[:, None].to(dtype)
        return -constants(alibi_slopes(self.num_heads), away)[:, None, None] * away


class T5(BiasPosition):
    """One learned number for each head and bucket of distances (Raffel et al. 2019, arXiv 1910.10683); any length.

    Started at zero, where it changes nothing. T5 adds it to unscaled scores, and shares one table between layers:
    both are the mixer's and the model's affair.

    Args:
        num_buckets: buckets of distances
        max_distance: tokens: from this distance on, all share the last bucket
        bidirectional: True: keys before and after a query have buckets of their own
    """

    name = "t5"

    def __init__(
        self,
        *,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ):
        super().__init__()
        t5_borders(num_buckets, max_distance, bidirectional)
        self.bucket = partial(
            t5_bucket,
            num_buckets=num_buckets,
            max_distance=max_distance,
            bidirectional=bidirectional,
        )
        self.table = nn.Parameter(torch.empty(num_buckets, num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.table)

    def bias(self, query_position, key_position, dtype=torch.float32):
        bucket = self.bucket(_distance(query_position, key_position))
        return rearrange(self.table[bucket].to(dtype), "b t s h -> b h t s")


class RelativePosition(Position):
    """Content and distance, with a bias for each (Dai et al. 2019, arXiv 1901.02860).

        scores_ij = (q_i + u) . k_j + (q_i + v) . W R_(i-j),   R_d = [sin(d w) | cos(d w)] of width D

    u and v start at zero and belong to this layer (the paper's `untie`); clamp_len replaces |d| by min(|d|, clamp_len).
    Distances are those of consecutive tokens, |i - j| < max(T, S).

    Args:
        clamp_len: tokens: larger distances count as this one; None: no limit
    """

    name = "transformer_xl"
    kind = "scores"

    def __init__(self, dim: int, *, num_heads: int, clamp_len: int | None = None):
        super().__init__()
        check_divisible(dim=dim, num_heads=num_heads)
        self.dim = dim
        self.num_heads = num_heads
        self.clamp_len = clamp_len
        self.distance = nn.Linear(dim, dim, bias=False)
        self.u, self.v = (nn.Parameter(torch.empty(num_heads, dim // num_heads)) for _ in "uv")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.u)
        nn.init.zeros_(self.v)

    def keys(
        self, distance: Int[Tensor, "n"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "n H K"]:
        """W R_d of these distances, query position - key position."""
        if self.clamp_len is not None:
            distance = distance.clamp(-self.clamp_len, self.clamp_len)
        table = sinusoid(distance, self.dim, pairing="half", dtype=dtype)
        return rearrange(self.distance(table), "n (h k) -> n h k", h=self.num_heads)

    def scores(
        self, q: Queries, k: Keys, query_position: Positions, key_position: Int[Tensor, "b S"]
    ) -> Weights:
        far = max(q.shape[2], k.shape[2]) - 1
        r = self.keys(torch.arange(-far, far + 1, device=q.device), q.dtype)
        distance = _distance(query_position, key_position)
        content = (q + self.u[:, None]) @ k.mT
        return content + relative_scores(q + self.v[:, None], r, distance)


class SegmentTerm(nn.Module):
    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.s = nn.Parameter(torch.empty(2, num_heads, head_dim))
        self.b = nn.Parameter(torch.empty(num_heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.s, std=0.02)
        nn.init.zeros_(self.b)


def _distance(query_position: Positions, key_position: Int[Tensor, "b S"]) -> Int[Tensor, "b T S"]:
    return query_position[:, :, None] - key_position[:, None, :]
