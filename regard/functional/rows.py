"""What plain forms share: softmax attention over given pairs, tiles that are computed again, and copies by position."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.core.mask import Mask
from regard.functional.choice import Impl, choose, plain_alone

TILE = 256
"""Queries whose scores are held at once."""


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    mask: Shaped[Tensor, "#B #H #T S"] | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v; G divides H.

    mask: allowed pairs, or a bias that is added to the scores. causal: j <= i, for T = S. scale: 1 / sqrt(K) by default.
    A query with no allowed key gives zero.
    """
    some = None
    if mask is not None and mask.dtype == torch.bool:
        some = mask.any(-1, keepdim=True)
        mask = mask | ~some
    fused = choose("softmax", _attend, impl, tile=TILE)
    y = fused(q, k, v, mask, causal=causal, scale=scale, dropout=dropout)
    return y if some is None else torch.where(some, y, y.new_zeros(()))


def _attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    mask: Shaped[Tensor, "#B #H #T S"] | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    tile: int = TILE,
) -> Float[Tensor, "B H T V"]:
    k, v = (grouped(z, q.shape[1]) for z in (k, v))

    def some(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        found = scores(q, k, scale)
        here = mask if mask is None or mask.shape[2] == 1 else mask[:, :, rows]
        if causal:
            place = torch.arange(k.shape[2], device=q.device)
            here = place <= place[rows, None]
        if here is not None and here.dtype == torch.bool:
            found = found.masked_fill(~here, torch.finfo(found.dtype).min)
        elif here is not None:
            found = found + here
        return F.dropout(found.softmax(-1).to(v.dtype), dropout) @ v

    return tiled(some, tile, q, k, v, random=dropout > 0)


def scores(
    q: Float[Tensor, "*b T K"], k: Float[Tensor, "*b S K"], scale: float | None = None
) -> Float[Tensor, "*b T S"]:
    """scale q k^T, in float32 at least: a large score that is rounded makes a weight that is wrong. scale: 1 / sqrt(K) by default."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return scale * q.to(wide) @ k.to(wide).mT


def masked_softmax(
    scores: Float[Tensor, "*B T S"], allowed: Bool[Tensor, "*b t S"]
) -> Float[Tensor, "*c T S"]:
    """Softmax over the allowed keys; a row without any gives zeros, with finite gradients."""
    some = allowed.any(-1, keepdim=True)
    weights = scores.masked_fill(~(allowed | ~some), torch.finfo(scores.dtype).min).softmax(-1)
    return torch.where(allowed, weights, weights.new_zeros(()))


def tiled(
    f: Callable[..., Float[Tensor, "*B t V"]],
    size: int,
    q: Shaped[Tensor, "*q T K"] | tuple[Tensor, ...],
    *others: Any,
    random: bool = False,
) -> Float[Tensor, "*y T V"]:
    """f(rows, q[rows], *others) for tiles of `size` queries, one after the other; each is computed again in the backward.

    A bare loop would keep every tile for its backward. Under `torch.func`, and while a program is exported, it is one tile of all queries.
    q: or several tensors, all cut alike. random: f draws random numbers, the same ones both times.
    """
    cut = q if isinstance(q, tuple) else (q,)
    T = cut[0].shape[-2]
    if plain_alone() or T <= size:
        return f(slice(0, T), *cut, *others)
    parts = []
    for start, *part in zip(range(0, T, size), *(z.split(size, -2) for z in cut), strict=True):
        rows = slice(start, start + part[0].shape[-2])
        given = (rows, *part, *others)
        parts.append(recomputed(f, *given, random=random) if torch.is_grad_enabled() else f(*given))
    return torch.cat(parts, -2)


def recomputed(
    f: Callable[..., Any], *arguments: Any, when: bool = True, random: bool = False, **options: Any
) -> Any:
    """f(*arguments, **options); the backward calls it again, `when` asked and if there is one.

    random: it draws random numbers, the same ones both times.
    """
    if not when or not torch.is_grad_enabled() or plain_alone():
        return f(*arguments, **options)
    return checkpoint(f, *arguments, use_reentrant=False, preserve_rng_state=random, **options)


def visible_keys(mask: Mask, T: int, S: int, rows: slice, window: int | None = None) -> slice:
    """The keys that some of these queries may see by causality and window; at least one."""
    if not mask.causal or mask.shift is not None:
        return slice(0, S)
    stop = max(rows.stop + S - T, 1)
    first = 0 if window is None else rows.start + S - T - window + 1
    return slice(min(max(first, 0), stop - 1), stop)


def take(z: Shaped[Tensor, "B H S K"], at: Int[Tensor, "*n"]) -> Shaped[Tensor, "B H *n K"]:
    """z at these positions, which all rows and heads share."""
    return z.index_select(2, at.flatten()).unflatten(2, at.shape)


def take_each(
    z: Shaped[Tensor, "B H S K"], at: Int[Tensor, "B H *n"]
) -> Shaped[Tensor, "B H *n K"]:
    """z at positions of each row and head. Whole rows: `gather`, which moves single numbers, takes twice the time."""
    B, H, S = z.shape[:3]
    first = (S * torch.arange(B * H, device=z.device)).view(B, H, *[1] * (at.dim() - 2))
    rows = z.flatten(0, 2).index_select(0, (first + at).flatten())
    return rows.unflatten(0, at.shape)


def mixed(w: Float[Tensor, "b *h T S"], v: Float[Tensor, "B *h S V"]) -> Float[Tensor, "B *h T V"]:
    """w v; weights that all examples share are not copied for each."""
    if w.shape[0] == v.shape[0]:
        return w @ v
    y = w[0] @ v.movedim(0, -2).flatten(-2)
    return y.unflatten(-1, (v.shape[0], -1)).movedim(-2, 0)


def grouped(z: Float[Tensor, "B G S K"], H: int) -> Float[Tensor, "B H S K"]:
    """Each of the G heads for H / G neighbours."""
    return z if z.shape[1] == H else z.repeat_interleave(H // z.shape[1], dim=1)
