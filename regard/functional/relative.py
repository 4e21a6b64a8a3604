"""Attention by content and by distance (Dai et al. 2019, arXiv 1901.02860).

    A_ij = (q_i + u) . k_j + (q_i + v_b) . r_(p_i - j),   p_i = i + S - T:  the last query is at the last key

and, with segments (Yang et al. 2019, arXiv 1906.08237), + (q_i + b) . s_ij, with s_ij one of two vectors:
i and j of one segment, or of two.

Each tile of queries is multiplied once with the vector of each distance, and the relative shift (a view of the same
numbers with rows one shorter) moves the products to their keys: no [T S K] is stored, and no [T S] beyond a tile.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OPEN, Keys, Mask, Mixed, Queries, Rate, Values, permute
from regard.functional.rows import Impl, upto
from regard.functional.softmax import Bias, softmax_attention


class Segments(NamedTuple):
    """Segment of every query and key; vectors for pairs of one segment and for pairs of two."""

    query: Int[Tensor, "B T"]
    key: Int[Tensor, "B S"]
    s: Float[Tensor, "2 H K"]  # of one segment, of two
    b: Float[Tensor, "H K"]


class Terms(NamedTuple):
    """Parameters of the scores besides queries and keys."""

    r: Float[Tensor, "n H K"]  # of `distances(T, S, causal)`
    u: Float[Tensor, "H K"]
    v_b: Float[Tensor, "H K"]
    segments: Segments | None = None


def distances(T: int, S: int, causal: bool, device: torch.device) -> Int[Tensor, "n"]:
    """The distances p_i - j that T queries and S keys need, falling from S - 1."""
    lowest = 0 if causal and T <= S else 1 - T
    return torch.arange(S - 1, lowest - 1, -1, device=device)


def relative_attention(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    terms: Terms,
    mask: Mask = OPEN,
    scale: float | None = None,
    window: int | None = None,
    dropout: Rate = 0.0,
    impl: Impl = "auto",
) -> Mixed:
    """softmax(scale A) v over the allowed keys.

    window: under `mask.causal`, a query sees no more than the last `window` keys. `mask.shift` must be None: a context
    of ragged rows has its tokens at their end.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    T = q.shape[2]
    S = k.shape[2]
    segments = terms.segments
    turned = scale * (q + terms.v_b[:, None])
    r = terms.r.transpose(0, 1)
    segment = None if segments is None else segment_bias(q, segments, scale)

    def bias(rows: slice, cols: slice) -> Float[Tensor, "B H t s"]:
        """scale (q_i + v_b) . r_(p_i - j) and of segments; finite and without meaning where causality hides the key."""
        t, s = rows.stop - rows.start, cols.stop - cols.start
        first = T - rows.stop + cols.start
        count = s if mask.causal and T <= S else t + s - 1
        distance = relative_shift(turned[:, :, rows] @ r[:, first : first + count].mT, s)
        return distance if segment is None else distance + segment(rows, cols)

    return softmax_attention(
        q + terms.u[:, None],
        k,
        v,
        bias=bias,
        mask=mask,
        scale=scale,
        window=window,
        dropout=dropout,
        impl=impl,
    )


def segment_bias(q: Queries, segments: Segments, scale: float) -> Bias:
    """scale (q_i + b) . s_ij for any tile."""
    both = torch.einsum("bhtk,nhk->bhtn", scale * (q + segments.b[:, None]), segments.s)

    def bias(rows: slice, cols: slice) -> Float[Tensor, "B H t s"]:
        one = segments.query[:, None, rows, None] == segments.key[:, None, None, cols]
        return torch.where(one, both[:, :, rows, :1], both[:, :, rows, 1:])

    return bias


def relative_shift(every: Float[Tensor, "*b t n"], s: int) -> Float[Tensor, "*b t s"]:
    """Entry (i, j) is every[i, t - 1 - i + j] where there is such a column; else it has no meaning. n >= s."""
    t, n = every.shape[-2:]
    flat = F.pad(every, (0, 1)).flatten(-2)
    return flat[..., t - 1 : t - 1 + t * n].unflatten(-1, (t, n))[..., :s]


def last_aligned(k: Keys, v: Values, mask: Mask) -> tuple[Keys, Values, Mask]:
    """The tokens of each row at its end, where the last query stands."""
    if mask.valid is None:
        return k, v, mask
    S = k.shape[2]
    source = (upto(S, k) + mask.valid.sum(1, keepdim=True)) % S
    pairwise = None if mask.pairwise is None else permute(mask.pairwise, source, 3)
    aligned = Mask(mask.causal, permute(mask.valid, source), pairwise)
    return permute(k, source, 2), permute(v, source, 2), aligned
