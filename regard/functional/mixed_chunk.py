"""Mixed chunk attention (FLASH, Hua et al. 2022, arXiv 2202.10447): exact inside chunks, summed between them.

    y_i = sum_{j in the chunk of i} w_ij v_j  +  a_i q_i M,   M = sum_j k_j v_j^T

Chunks of C tokens start at the first token, and are an axis: q [B H N C K], w [B H N C C]. M is the sum over all tokens, or, where causal,
over the chunks before the query's own. Both sums may have their own q and k. The weights w are the mechanism's:

    inside(q, k, v, allowed, ahead) -> sum_j w_ij v_j   with the allowed pairs (None: all), and j - i of each
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, Mixed, OwnKeys, OwnValues, Queries
from regard.functional.rows import (
    cleared,
    fitted,
    in_chunks,
    in_time,
    masked_softmax,
    of_any_length,
    scores,
    upto,
    wide_type,
)

Inside = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor], Tensor]
LinNorm = Literal["count", "chunk", "n"]


@dataclass(frozen=True)
class Share:
    """The factor a of a sum over n tokens: 1 / n, or one over a constant."""

    constant: int | None = None

    def __call__(self, n: Int[Tensor, "*b"], dtype: torch.dtype) -> Float[Tensor, "*b"]:
        return 1 / (n.clamp_min(1) if self.constant is None else n * 0 + self.constant).to(dtype)


class Sums(NamedTuple):
    """What the two sums are made of: q and k of each (None: y is without it), and the rule of each."""

    near: tuple[Tensor, Tensor] | None
    far: tuple[Tensor, Tensor] | None
    inside: Inside
    share: Share


def softmax_inside(
    q: Float[Tensor, "B H N c K"],
    k: Float[Tensor, "B H N s K"],
    v: Float[Tensor, "B H N s V"],
    allowed: Bool[Tensor, "b h n #c s"] | None,
    ahead: Int[Tensor, "*d c s"],
) -> Float[Tensor, "B H N c V"]:
    """w_i = softmax of q_i . k_j over the allowed j."""
    s = scores(q, k, 1.0)
    w = s.softmax(-1) if allowed is None else masked_softmax(s, allowed)
    return w.type_as(v) @ v


def mixed_chunks(sums: Sums, v: OwnValues, *, chunk_size: int, mask: Mask) -> Mixed:
    """y of all tokens; valid ones come first in each row."""
    y = []
    if sums.near is not None:
        y.append(within(sums.inside, *sums.near, v, chunk_size, mask))
    if sums.far is not None:
        y.append(between(sums.share, *sums.far, v, chunk_size, mask))
    return sum(y[1:], y[0])


def within(
    inside: Inside, q: Queries, k: OwnKeys, v: OwnValues, chunk_size: int, mask: Mask
) -> Mixed:
    """Every token attends to its own chunk."""
    T = v.shape[2]
    C = fitted(chunk_size, T)
    place = upto(C, v)
    ahead = place - place[:, None]
    allowed: Tensor | None = (ahead <= 0)[None, None, None]  # what a valid token sees is valid
    if not mask.causal:
        here = mask.valid
        if here is None and (of_any_length(T) or T % C):  # chunks are filled up
            here = v.new_ones(1, T, dtype=torch.bool)
        allowed = None if here is None else in_chunks(here[:, None, :, None], C).mT
    return in_time(inside(in_chunks(q, C), in_chunks(k, C), in_chunks(v, C), allowed, ahead), T)


def between(
    share: Share, q: Queries, k: OwnKeys, v: OwnValues, chunk_size: int, mask: Mask
) -> Mixed:
    """a_i q_i M. M is kept in float32 at least: the same numbers are added to it many times."""
    T, wide = v.shape[2], wide_type(v)
    if not mask.causal:
        one = v.new_ones(1, T, dtype=torch.bool)
        count = (one if mask.valid is None else mask.valid).sum(1, keepdim=True)
        M = (cleared(k, mask.valid).mT @ v).to(wide) * share(count, wide)[:, None, :, None]
        return q @ M.type_as(v)
    C = fitted(chunk_size, T)
    q, k, v = (in_chunks(z, C) for z in (q, k, v))
    M = F.pad((k.mT @ v)[:, :, :-1].cumsum(2, dtype=wide), (0, 0, 0, 0, 1, 0))  # B H N K V
    summed = C * upto(q.shape[2], v)
    return in_time(q @ (M * share(summed, wide)[:, None, None]).type_as(v), T)


def units(v: OwnValues) -> Float[Tensor, "B H T T"]:
    """A value of its own for each token: mixed, they are the weights, which have signs between chunks."""
    T = v.shape[2]
    return torch.eye(T, dtype=v.dtype, device=v.device).expand(*v.shape[:2], T, T)
