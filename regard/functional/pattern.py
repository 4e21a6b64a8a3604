"""Softmax attention over a pattern of pairs (Child et al. 2019, arXiv 1904.10509; Beltagy et al. 2020, arXiv 2004.05150).

    y_i = sum_j a_ij v_j,   a_i = softmax of scale q_i . k_j over j in A_i,   A = A_1 | A_2 | ..   (j <= i when causal)

Queries are cut into N blocks of c for each of d lanes (see `functional.patterns`). Terms A_n that share the blocks have their keys side by
side; those that do not are parts of their own, merged under one softmax by the logarithm of each row's sum of exponentials. A pair of
several terms counts in the first of them.

    q [B H N d c K],   k [B H N d s K],   scores [B H N d c s]

Blocks are copies by position. Where the keys of a block grow with T, its queries are taken a tile at a time. Before the keys of the tokens
are those that every query sees: learned ones, and global tokens of the mask. Rows of global tokens are computed apart, over all keys.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from regard.core import OPEN, Mask, Mixed, OwnKeys, OwnValues, Queries, ShapeError, shown
from regard.functional.global_rows import KeysAndValues, Prefix, joined, prefix_keys, replace_rows
from regard.functional.patterns import Global, Pattern, PerHead, Scattered, picture
from regard.functional.rows import (
    Impl,
    choose,
    masked_softmax,
    of_any_length,
    scores,
    take,
    take_each,
    tiled,
    upto,
)
from regard.functional.softmax import attend as attend_rows

TILE = 128
"""Queries of a block, or of a tile."""


def pattern_attention(
    q: Queries,
    k: OwnKeys,
    v: OwnValues,
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
    prefix: KeysAndValues | None = None,
    max_global: int | None = None,
    impl: Impl = "auto",
) -> Mixed:
    """softmax(scale q k^T) v over the pairs of the pattern that the mask allows; zero where there is none.

    prefix: keys and values that every query sees besides. max_global: the most global tokens that a row has. Without
    it any token may be one, and where `mask.global_tokens` is given every query is compared with every key: time grows
    as T^2, memory does not. So it does in a program that is exported for any length; there, memory too.
    Raises ShapeError where a pattern for each head meets another number of heads, or a table fewer blocks than there are.
    """
    if isinstance(pattern, PerHead) and len(pattern.heads) != q.shape[1]:
        raise ShapeError(f"a pattern for {len(pattern.heads)} heads meets queries of {q.shape[1]}")
    how: dict[str, Any] = {"pattern": pattern, "mask": mask, "scale": scale}
    T = q.shape[2]
    free_length = isinstance(T, torch.SymInt)  # of an exported program
    for table, size in (
        (z.table, z.size) for z in getattr(pattern, "parts", (pattern,)) if isinstance(z, Scattered)
    ):
        H, N, _ = table.shape
        if H not in (1, q.shape[1]) or (not free_length and N * size < T):
            raise ShapeError(f"a table for {H} heads and {N} blocks of {size} meets {shown(q)}")
    if free_length or (mask.global_tokens is not None and max_global is None):
        return _dense(q, k, v, prefix, impl=impl, **how)
    if isinstance(pattern, PerHead):  # heads of one pattern together
        found: dict[int, Tensor] = {}
        for one in dict.fromkeys(pattern.heads):
            heads = [h for h, other in enumerate(pattern.heads) if other == one]
            pairs = mask.pairwise
            pairs = pairs if pairs is None or pairs.shape[1] == 1 else heads_of(pairs, heads)
            how |= {"pattern": one, "mask": replace(mask, pairwise=pairs)}
            how["prefix"] = prefix and (heads_of(prefix[0], heads), heads_of(prefix[1], heads))
            own = [heads_of(z, heads) for z in (q, k, v)]
            y = pattern_attention(*own, max_global=max_global, impl=impl, **how)
            found |= dict(zip(heads, y.unbind(1), strict=True))
        return torch.stack([found[h] for h in range(len(found))], 1)
    first = None
    rows: list[tuple[Tensor, Tensor]] = []
    if prefix is not None or mask.global_tokens is not None:
        first, rows = prefix_keys(k, v, prefix, mask, max_global)
    y = choose("pattern", attend, impl, tile=TILE)(q, k, v, *(first or ()), **how)
    marked = [term for term in pattern.terms if isinstance(term, Global)]
    if spans := marked and _spans(marked, mask.causal):
        every = upto(T, q)
        at = torch.cat([every[span] for span in spans]).expand(q.shape[0], -1)
        rows.append((at, torch.ones_like(at, dtype=torch.bool)))
    for at, present in rows:
        y = replace_rows(y, q, k, v, mask, at, present, scale=scale, prefix=prefix, impl=impl)
    return y


def _spans(terms: list[Global], causal: bool) -> list[slice]:
    """The tokens that see all, each once, whatever the order of the terms; in causal order the first see each other alone, as all do."""
    spans = []
    earlier: list[tuple] = []
    for term in terms:
        parts = [(term.start, term.stop)] if term.start > 0 or not causal else []
        for start, stop in earlier:  # what is left of it on both sides, which may be nothing
            parts = [p for a, b in parts for p in ((a, min(b, start)), (max(a, stop), b))]
        spans += [slice(*part) for part in parts]
        earlier.append((term.start, term.stop))
    return spans


def heads_of(z: Shaped[Tensor, "B H *n"], heads: list[int]) -> Shaped[Tensor, "B h *n"]:
    """These heads; a list as an index would be copied to the device, which waits for it."""
    every = z.unbind(1)
    return torch.stack([every[h] for h in heads], 1)


def attend(q, k, v, *first: Tensor, pattern: Pattern, mask: Mask, scale=None, tile=TILE) -> Tensor:
    """All rows but those of global tokens. first: the tensors of a `Prefix`, or none."""
    prefix = Prefix(*first) if first else None
    earlier: list[Pattern] = []
    parts = []
    groups = sharing(pattern)
    for terms in groups:
        merged = len(groups) > 1
        parts.append(_part(q, k, v, prefix, terms, earlier, mask, scale, tile, merged))
        earlier, prefix = [*earlier, *terms], None
    if len(parts) == 1:
        return parts[0]
    both = torch.stack(parts)
    return (both[..., -1:].softmax(0) * both[..., :-1]).sum(0).type_as(v)


def sharing(pattern: Pattern) -> list[list[Pattern]]:
    """The terms of the pattern; those that can share blocks together, those whose keys do not grow with T first."""
    terms = pattern.terms
    sized = [term.queries for term in terms if isinstance(term.queries, int)]
    groups: dict[tuple, list[Pattern]] = {}
    for term in sorted(terms, key=lambda term: term.queries == "all"):
        shared = sized and term.queries == "any" and term.lanes == 1
        groups.setdefault((term.lanes, sized[0] if shared else term.queries), []).append(term)
    return list(groups.values())


def _part(
    q,
    k,
    v,
    prefix: Prefix | None,
    terms: list[Pattern],
    earlier: list[Pattern],
    mask: Mask,
    scale,
    tile: int,
    merged: bool,
) -> Mixed:
    """Outputs over the pairs of these terms that are in no earlier one. merged: then a column, the log of their sum of exponentials."""
    T = q.shape[2]
    i = _queries(terms, T, tile, q.device)
    c = i.shape[2]
    keys = [term.keys(i[..., :1], c, T, mask.causal) for term in terms]
    j = beside(i[..., :0], *keys)  # h N d s, or N d s
    j = j if j.ndim == 4 else j[None]
    keys = [z[None, ..., None, :] for z in j.split([z.shape[-1] for z in keys], -1)]
    there, at = (j >= 0) & (j < T), j.clamp(0, T - 1)
    others = None if mask.global_tokens is None else ~mask.global_tokens
    for marks in (mask.valid, others):
        there = there if marks is None else there & marks[:, at]
    i = i.clamp_max(T - 1)  # copies of the last query are dropped below

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H N d t V"]:
        query, own = i[None, None, :, :, rows, None], []
        for n, (term, of_term) in enumerate(zip(terms, keys, strict=True)):
            pairs = term.contains(query, of_term)
            for one in (*earlier, *terms[:n]):
                pairs = pairs & ~one.contains(query, of_term)
            own.append(pairs)
        pairs = _masked(beside(*own) & there[..., None, :], mask, query, at[None, ..., None, :])
        if prefix is not None:
            first, present = (z[:, None, None, None, None] for z in (prefix.at, prefix.present))
            pairs = beside(_masked(present, mask, query, first.clamp_min(0)) | (first < 0), pairs)
        found = scores(q, k, scale)
        a = masked_softmax(found, pairs)
        y = a.type_as(v) @ v
        if not merged:
            return y
        least, most = torch.finfo(found.dtype).min, a.amax(-1, keepdim=True)
        top = found.masked_fill(~pairs, least).amax(-1, keepdim=True)
        return torch.cat([y, top - most.masked_fill(most == 0, 1).log()], -1)

    column = at
    if prefix is not None:
        k, v = joined((prefix.k, prefix.v), (k, v))
        E = prefix.k.shape[2]
        column = beside(upto(E, q), at + E)
    if column.shape[0] == 1:
        k, v = take(k, column[0]), take(v, column[0])
    else:
        k, v = (take_each(z, column.expand(z.shape[0], *column.shape)) for z in (k, v))
    q = take(q, i)
    whole = (torch.compiler.is_compiling() and of_any_length(c)) or c <= tile
    y = some(slice(0, c), q, k, v) if whole else tiled(some, tile, q, k, v)
    return y.transpose(3, 4).flatten(2, 4)[:, :, :T]  # from N d c back to the order of time


def _queries(terms: list[Pattern], T: int, tile: int, device: torch.device) -> Int[Tensor, "N d c"]:
    """The queries of each block, from 0 on; the last blocks of all lanes are filled up."""
    d = terms[0].lanes
    lane = (T + d - 1) // d
    size = next((term.queries for term in terms if term.queries != "any"), tile)
    c = lane if isinstance(size, str) else torch.sym_min(size, lane)
    block = torch.arange((lane + c - 1) // c, device=device)[:, None, None]
    inside = torch.arange(c, device=device)
    return d * (c * block + inside) + torch.arange(d, device=device)[:, None]


def beside(*parts: Shaped[Tensor, "*#n _"]) -> Shaped[Tensor, "*n s"]:
    shape = torch.broadcast_shapes(*(z.shape[:-1] for z in parts))
    return torch.cat([z.expand(*shape, z.shape[-1]) for z in parts], -1)


def _masked(
    pairs: Bool[Tensor, "b h N d t s"],
    mask: Mask,
    i: Int[Tensor, "1 1 N d t 1"],
    j: Int[Tensor, "b h N d 1 s"],
) -> Bool[Tensor, "b h N d t s"]:
    """These pairs, as far as the order and single pairs of the mask allow."""
    if mask.causal:
        pairs = pairs & (j <= i)
    if mask.pairwise is None:
        return pairs
    b, h = (upto(n, j) for n in mask.pairwise.shape[:2])
    b, h = (z.view(shape) for z, shape in ((b, (-1, 1, 1, 1, 1, 1)), (h, (-1, 1, 1, 1, 1))))
    return pairs & mask.pairwise[b, h, i, j]


def _dense(
    q, k, v, learned: KeysAndValues | None, *, pattern: Pattern, mask: Mask, scale, impl: Impl
) -> Mixed:
    """Every query is compared with every key."""
    E = 0 if learned is None else learned[0].shape[2]
    k, v = joined(learned, (k, v))

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        pairs = _pairs(pattern, mask, k.shape[2] - E, E, rows, q.device)
        return attend_rows(q, k, v, pairs, scale=scale, impl=impl)

    return tiled(some, getattr(impl, "tile", None) or TILE, q, k, v)


def _pairs(
    pattern: Pattern, mask: Mask, T: int, E: int, rows: slice, device: torch.device
) -> Bool[Tensor, "b h t S"]:
    allowed = mask.dense(T, T, pattern=picture(pattern, T, device=device, rows=rows), rows=rows)
    return F.pad(allowed, (E, 0), value=True)


def weights(
    q: Queries,
    k: OwnKeys,
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
    prefix: Float[Tensor, "B H E K"] | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weights that `pattern_attention` applies, prefix keys first; rows without a key are zero."""
    T = q.shape[2]
    E = 0 if prefix is None else prefix.shape[2]
    k = k if prefix is None else torch.cat([prefix, k], 2)
    pairs = _pairs(pattern, mask, T, E, slice(0, T), q.device)
    return masked_softmax(scores(q, k, scale), pairs).type_as(q)
