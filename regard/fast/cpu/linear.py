"""Causal kernel attention (see `functional.linear`) in pieces of time, whose features stay in cache and are computed again in the backward.

The plain form holds features of all tokens several times over: past some 32 MB they are fresh pages at every call, which costs more than
the sums. Here q, k, v, y and the states between the pieces are kept, and nothing else.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.features import (
    FeatureMap,
    Keys,
    elu_plus_one,
    favor_keys,
    favor_queries,
    present,
    unit_features,
    unit_keys,
)
from regard.functional.linear import CHUNK, Denominator, chunked_sums, floored, signed
from regard.functional.rows import Form, recomputed, wide_type

TILE = 512
"""Tokens of a piece."""
ROOM, KEPT = 1 << 22, 1 << 25
"""Bytes of features up to which the plain form is as fast, and up to which it is the faster one in training, where it computes them once."""


def linear(q, k, v, *, feature_map, denominator, mask: Mask = OPEN, form: Form) -> Tensor:
    def keys(k, valid, c) -> Keys:
        return Keys(present(feature_map(k), valid))

    width = feature_map(q[:0, :0, :1]).shape[-1]
    return _scan(feature_map, keys, denominator, width, mask, form, q, k, v)


def rfa(q, k, v, w, gate=None, *, features, mask: Mask = OPEN, form: Form) -> Tensor:
    def keys(k, valid, c, w) -> Keys:
        return unit_keys(k, w, features, None, valid)

    queries, width = partial(unit_features, kernel=features), w.shape[1] * 2
    return _scan(queries, keys, signed, width, mask, form, q, k, v, w)


def favor(q, k, v, w, *, features, stabiliser, mask: Mask = OPEN, form: Form) -> Tensor:
    def keys(k, valid, c, w) -> Keys:
        return favor_keys(k, w, features, causal=True, valid=valid, before=c)

    queries, width = partial(favor_queries, features=features, causal=True), w.shape[1]
    return _scan(queries, keys, floored, width, mask, form, q, k, v, w)


def _scan(
    queries: Callable[..., Tensor],
    keys: Callable[..., Keys],
    denominator: Denominator,
    width: int,
    mask: Mask,
    form: Form,
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *weights: Tensor,
) -> Float[Tensor, "B H T V"]:
    def step(valid, q, k, v, state, *weights) -> tuple[Tensor, tuple]:
        S, z, c = state
        new = keys(k, valid, c, *weights)
        phi_q = queries(q, *weights)
        sums, total, S, z = chunked_sums(
            phi_q, new.phi, v, new.log_decay, S, z, chunk=form.chunk or CHUNK
        )
        return sums / denominator(total), (S, z, new.c)

    def start(v: Tensor) -> tuple:
        S = v.new_zeros(
            *v.shape[:2], queries(q[:1, :, :1], *weights).shape[-1], v.shape[3], dtype=wide_type(v)
        )
        return S, S[..., 0], None

    return in_pieces(step, start, width, mask, form, q, k, v, *weights)


def in_pieces(
    step: Callable[..., tuple[Tensor, Any]],
    start: Callable[[Tensor], Any],
    width: int,
    mask: Mask,
    form: Form,
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *weights: Tensor,
) -> Float[Tensor, "B H T V"]:
    """y of step(valid, q, k, v, state, *weights) -> y, state for pieces of time, and for as many rows of the batch as the room allows."""
    tile = form.tile or TILE
    piece = q.element_size() * q.shape[1] * width * tile
    some = max(1, (form.room or KEPT) // 8 // piece)
    valid = [None] * len(q) if mask.valid is None else mask.valid.split(some)
    made = []
    for *row, here in zip(q.split(some), k.split(some), v.split(some), valid, strict=False):
        state, y = start(row[2]), []
        times = [None] * q.shape[2] if here is None else here.split(tile, 1)
        for *part, now in zip(*(z.split(tile, 2) for z in row), times, strict=False):
            out, state = recomputed(step, now, *part, state, *weights)
            y.append(out)
        made.append(torch.cat(y, 2))
    return torch.cat(made)


def unfit_linear(q, k, v, *, feature_map, denominator, mask: Mask = OPEN, form: Form) -> str | None:
    if feature_map is not elu_plus_one and not isinstance(feature_map, FeatureMap):
        return "a feature map of one's own may hold parameters"
    return unfit(q, k, v, q.shape[-1], mask, form)


def unfit_rfa(q, k, v, w, gate=None, *, features, mask: Mask = OPEN, form: Form) -> str | None:
    if gate is not None:
        return "with a gate the plain form is faster"
    return unfit(q, k, v, w.shape[1] * 2, mask, form)


def unfit_favor(q, k, v, w, *, features, stabiliser, mask: Mask = OPEN, form: Form) -> str | None:
    if callable(features):
        return "a function of one's own may hold parameters"
    return unfit(q, k, v, w.shape[1], mask, form)


def unfit(q: Tensor, k: Tensor, v: Tensor, width: int, mask: Mask, form: Form) -> str | None:
    """Why a scan over pieces cannot, or need not, serve."""
    if not (q.numel() and v.numel()):
        return "there is nothing to compute"
    if mask.shift is not None or q.shape[2] != k.shape[2]:
        return "it is for as many keys as queries, on one axis"
    features = k.element_size() * width * k[..., 0].numel()
    trained = torch.is_grad_enabled() and any(z.requires_grad for z in (q, k, v))
    if form.name == "auto" and features <= (form.room or (KEPT if trained else ROOM)):
        return "the features fit into the cache, and the plain form is as fast"
    return None
