"""Causal sums (see `functional.linear`) chunk after chunk, in cache. The backward goes through the chunks again: inputs alone are kept for it."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Mask, MixedTile
from regard.functional.linear import CAUSAL, CHUNK
from regard.functional.rows import Form, unrounded, wide_type, with_ones

LEAST = 1 << 21
"""Bytes of the features of all keys from which this is faster."""


def attend(phi_q, phi_k, v, log_decay=None, S=None, z=None, *, mask: Mask = CAUSAL, form: Form):
    v = with_ones(v)
    none = v.new_zeros(*v.shape[:2], phi_k.shape[3], v.shape[3])
    S = none if S is None else torch.cat([S, z[..., None]], -1)
    y, last = chunk_sums(phi_q, phi_k, v, S.to(wide_type(S)), form.chunk or CHUNK)
    last = last.type_as(S)
    return y[..., :-1], y[..., -1:], last[..., :-1], last[..., -1]


def unfit(phi_q, phi_k, v, log_decay=None, *state, mask: Mask = CAUSAL, form: Form) -> str | None:
    if log_decay is not None or not mask.causal:
        return "it is for causal sums without decay"
    return unfit_sums(phi_q, phi_k, v, phi_q.shape[-1], mask, form)


def unfit_sums(q, k, v, width: int, mask: Mask, form: Form) -> str | None:
    """Why sums of so many features cannot, or need not, be taken in pieces."""
    if not (q.numel() and v.numel()):
        return "there is nothing to compute"
    if mask.causal and (mask.shift is not None or q.shape[2] != k.shape[2]):
        return "causal order is for as many keys as queries, on one axis"
    features = k.element_size() * width * k[..., 0].numel()
    if form.name == "auto" and features < (form.room or LEAST):
        return "the features fit into the cache, and the plain form is as fast"
    return None


def chunk_sums(
    a: Float[Tensor, "B H t M"],
    e: Float[Tensor, "B H t M"],
    v: MixedTile,
    S: Float[Tensor, "B H M V"],
    chunk: int,
) -> tuple[MixedTile, Float[Tensor, "B H M V"]]:
    """Sums of the values up to each query, and S after them, from that before."""
    return _Sums.apply(a, e, v, S, chunk)


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a: Tensor, e: Tensor, v: Tensor, S: Tensor, chunk: int):
        ctx.save_for_backward(a, e, v, S)
        ctx.chunk = chunk
        heads = S.shape[:2]
        y = []
        with unrounded(a):
            S = S.flatten(0, 1)
            for q, k, w in _chunks(chunk, a, e, v):
                y.append((q @ S.type_as(q)).baddbmm_((q @ k.mT).tril_(), w))
                S = S + k.mT @ w
        return torch.cat(y, 1).unflatten(0, heads), S.unflatten(0, heads)

    @staticmethod
    def backward(ctx, dy: Tensor, dS: Tensor):
        a, e, v, S = ctx.saved_tensors
        heads = S.shape[:2]
        da = []
        de = []
        dv = []
        with unrounded(a):
            S, dS = S.flatten(0, 1), dS.flatten(0, 1)
            chunks = [*_chunks(ctx.chunk, a, e, v, dy.type_as(v))]
            for q, k, w, g in chunks:
                pairs = (g @ w.mT).tril_()
                da.append((g @ S.type_as(g).mT).baddbmm_(pairs, k))
                de.append(pairs.mT @ q)
                S = S + k.mT @ w
            for (q, k, w, g), dk in zip(chunks[::-1], de[::-1], strict=True):
                after = dS.type_as(g)
                dv.append(((q @ k.mT).tril_().mT @ g).baddbmm_(k, after))
                dk.baddbmm_(w, after.mT)
                dS = dS + q.mT @ g
        joined = (torch.cat(parts, 1).unflatten(0, heads) for parts in (da, de, dv[::-1]))
        return *joined, dS.unflatten(0, heads), None


def _chunks(chunk: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Chunks of time of each, heads of all rows beside each other."""
    cut = ([part.flatten(0, 1) for part in z.split(chunk, 2)] for z in tensors)
    return zip(*cut, strict=True)
