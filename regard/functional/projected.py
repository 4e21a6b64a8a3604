"""Softmax attention to a fixed number of slots, each a weighted sum of all keys (Linformer, Wang et al. 2020, arXiv 2006.04768).

y = softmax(q (E k)^T / sqrt(K)) F v,   E, F [M S]:   time grows as T M K
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Keys, Marks, Mixed, Queries, Values
from regard.functional.rows import Impl, apart, cleared, side_by_side, upto
from regard.functional.softmax import attend


def projected_attention(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    E: Float[Tensor, "#B #H M S"],
    F: Float[Tensor, "#B #H M S"],
    valid: Marks | None = None,
    slots: Bool[Tensor, "#B M"] | None = None,
    impl: Impl = "auto",
) -> Mixed:
    """softmax(q (E k)^T / sqrt(K)) (F v). Keys that are not valid are cleared first: afterwards they could not be.

    slots: those that take part (default: all).
    """
    k = in_slots(E, cleared(k, valid))
    v = in_slots(F, cleared(v, valid))
    return attend(q, k, v, None if slots is None else slots[:, None, None], impl=impl)


def segment_means(
    count: Int[Tensor, "b"],
    S: int,
    M: int,
    dtype: torch.dtype,
    used: Int[Tensor, "b"] | None = None,
) -> Float[Tensor, "b 1 M S"]:
    """The matrix that takes means over M segments, as equal as can be, of the first `count` of S tokens.

    With no more tokens than segments each token is alone in one; a segment without a token has a row of zeros. used: the first
    segments, which alone have tokens.
    """
    place = upto(S, count)
    segment = place * (M if used is None else used[:, None]) // count.clamp_min(1)[:, None]
    member = segment[:, None, :] == upto(M, count)[:, None]
    member = (member & (place < count[:, None])[:, None, :])[:, None].to(dtype)
    return member / member.sum(-1, keepdim=True).clamp_min(1)


def in_slots(E: Float[Tensor, "b h M S"], z: Keys) -> Float[Tensor, "B H M K"]:
    """E z. A matrix shared by all heads multiplies them side by side: one product and one gradient, not H."""
    if E.shape[1] > 1:
        return E @ z
    return apart(E[:, 0] @ side_by_side(z), z.shape[3])
