"""Attention with synthesized logits (Synthesizer, Tay et al. 2020, arXiv 2005.00743).

    y_i = sum_j w_ij v_j,   w_i = softmax over the allowed j of L_ij

No pair of tokens makes L; it is [b H T S], and b is 1 where all examples share it:

    table      L_ij = R_ij                          product    L_ij = R_i . C_j (+ b_j)
    outer      L_ij = A_ip C_iq,  j = p b + q       same       L_ij = A_ip C_iq,  p = j mod a, q = j mod b
    blend      L_ij = sum_m a_m L^m_ij

Tensors of the queries are cut with them, and logits are made for one tile of queries at a time. Cost: 2 T S V operations per head, beside
those of the logits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import OPEN, Mask, Mixed, MixedTile, ShapeError, Values
from regard.functional.rows import (
    Impl,
    choose,
    mixed,
    of_any_length,
    ranged,
    tiled,
    visible_keys,
    wide_type,
)

TILE = 160
"""Queries whose weights are held at once."""
LogitsTile = Float[Tensor, "b H t S"]


@dataclass(frozen=True, eq=False)
class Logits:
    """Called with queries and a number of keys S, it gives [b H t S]: make(rows, S, *of_queries, *others).

    of_queries [#b #H T ..]: `make` gets the part of these queries. others: it gets them whole.
    """

    make: Callable[..., Tensor]
    of_queries: tuple[Tensor, ...] = ()
    others: tuple[Tensor, ...] = ()

    def __call__(self, rows: slice, S: int) -> LogitsTile:
        return self.make(rows, S, *(z[:, :, rows] for z in self.of_queries), *self.others)


def table(rows: slice, S: int, R: Float[Tensor, "#b #H t M"]) -> LogitsTile:
    return R[..., :S]


def product(
    rows: slice,
    S: int,
    R: Float[Tensor, "#b #H t F"],
    C: Float[Tensor, "#b #H M F"],
    b: Float[Tensor, "#b #H M"] | None = None,
) -> LogitsTile:
    R, C = ranged(R, C) if R.dtype == torch.float16 else (R, C)
    L = R @ C[:, :, :S].mT
    return L if b is None else L + b[:, :, None, :S]


def outer(
    rows: slice, S: int, A: Float[Tensor, "#B #H t a"], C: Float[Tensor, "#B #H t c"]
) -> Float[Tensor, "B H t S"]:
    # A program for any length takes all of A: one entry alone would be a case of its own.
    A = A if of_any_length(S) else A[..., : -(-S // C.shape[-1])]
    A, C = A.to(wide_type(A)), C.to(wide_type(C))
    return (A[..., None] * C[..., None, :]).flatten(-2)[..., :S]


def same(
    rows: slice, S: int, A: Float[Tensor, "#B #H t a"], C: Float[Tensor, "#B #H t c"]
) -> Float[Tensor, "B H t S"]:
    A, C = (z.to(wide_type(z)).repeat(1, 1, 1, -(-S // z.shape[-1]))[..., :S] for z in (A, C))
    return A * C


def blended(shares: Float[Tensor, "M H"], members: Sequence[Logits]) -> Logits:
    """The sum of the members' logits, each times its share in every head."""
    of_queries = (z for member in members for z in member.of_queries)
    others = (z for member in members for z in member.others)
    return Logits(partial(blend, tuple(members)), tuple(of_queries), (shares, *others))


def blend(members: Sequence[Logits], rows: slice, S: int, *tensors: Tensor) -> LogitsTile:
    given = iter(tensors)
    parts = [tuple(islice(given, len(member.of_queries))) for member in members]
    made = []
    for a, member, part in zip(next(given), members, parts, strict=True):
        L = member.make(rows, S, *part, *islice(given, len(member.others)))
        made.append(a[:, None, None] * L)
    return sum(made[1:], made[0])


def synthesizer_attention(
    logits: Logits | Callable[[slice, int], Tensor],
    v: Values,
    *,
    T: int,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Mixed:
    """softmax(logits) v over the allowed keys, for T queries; a query without a key gives zero.

    logits: also a function of one's own, (rows, S) -> [b H t S] for these queries and the first S keys.
    Raises ShapeError for logits of fewer queries or keys.
    """
    L = logits if isinstance(logits, Logits) else Logits(logits)
    reach = [(z, T) for z in L.of_queries]
    reach += [(z, v.shape[2]) for z in L.others if L.make is product]
    for z, tokens in reach:
        if z.shape[2] < tokens:
            raise ShapeError(f"logits for {z.shape[2]} positions meet {tokens} tokens")
    attention = choose("synthesizer", attend, impl, tile=TILE)
    return attention(v, *L.of_queries, *L.others, logits=L, T=T, mask=mask)


def attend(
    v: Values, *tensors: Tensor, logits: Logits, T: int, mask: Mask, tile: int = TILE
) -> Mixed:
    """tensors: those of the logits, in whose place they stand."""
    S = v.shape[2]
    n = len(logits.of_queries)
    wide = wide_type(v)
    hides = mask.causal or mask.valid is not None or mask.pairwise is not None

    def some(rows: slice, _: Tensor, *given: Tensor) -> MixedTile:
        *own, v = given
        cols = visible_keys(mask, T, S, rows)
        L = logits.make(rows, cols.stop, *own)
        v = v[:, :, cols]
        if not hides:
            return mixed(L.softmax(-1, wide).type_as(v), v)
        allowed = mask.dense(T, S, device=v.device, rows=rows, cols=cols)
        w = L.masked_fill(~allowed, torch.finfo(L.dtype).min).softmax(-1, wide)
        return mixed(w.type_as(v), v).masked_fill(~allowed.any(-1, keepdim=True), 0)

    place = torch.arange(T, device=v.device)[:, None]
    return tiled(some, tile, (place, *(z[:, :, :T] for z in tensors[:n])), *tensors[n:], v)
