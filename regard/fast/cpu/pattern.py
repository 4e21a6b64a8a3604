"""Patterns in tiles (see `fast.cpu.plan`), each through torch's fused kernel, with a backward by hand."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.fast.cpu.blocks import cut
from regard.fast.cpu.plan import plan_tiles
from regard.fast.cpu.tiles import tile_attention
from regard.functional.global_rows import prefix_keys, replace_rows
from regard.functional.patterns import Pattern, Window
from regard.functional.rows import Form, attend as attend_rows, take_each


def attend(
    q,
    k,
    v,
    first_k=None,
    first_v=None,
    *,
    pattern: Pattern,
    mask: Mask = OPEN,
    scale: float | None = None,
    max_global: int | None = None,
    form: Form,
):
    how, (H, T) = cut(form, tile=128), q.shape[1:3]
    learned = None if first_k is None else (first_k, first_v)
    prefix, rows = prefix_keys(k, v, learned, mask, max_global)
    # The fused kernel of the forward is as fast with few rows, the products of the backward are not.
    plan = partial(plan_tiles, pattern, mask, H, T, how.tile, prefix=prefix)
    y = tile_attention(
        q,
        k,
        v,
        plan=plan(rows=max(1, how.tile // 4)),
        back=partial(plan, rows=max(1, how.tile // 2)),
        room=how.room,
        prefix=None if prefix is None else (prefix.k, prefix.v),
        scale=scale,
    )
    for at, present in rows:
        y = replace_rows(y, q, k, v, mask, at, present, scale=scale, prefix=learned, impl="auto")
    return y


def window(q, k, v, *, window: int, dilation: int, mask: Mask = OPEN, form: Form):
    return attend(q, k, v, pattern=Window(window, window, dilation), mask=mask, form=form)


def unfit(q, k, v, *, mask: Mask = OPEN, form: Form, **options) -> str | None:
    """Of windows."""
    if q.shape[1:3] != k.shape[1:3]:
        return "it is for as many keys as queries, on one axis"
    return None if mask.global_tokens is None else "any token may be global"


def step(
    q: Float[Tensor, "B H 1 K"],
    k: Float[Tensor, "B H n K"],
    v: Float[Tensor, "B H n V"],
    *,
    pattern: Pattern,
    query: Int[Tensor, "B 1"],
    key: Int[Tensor, "B S"],
    store: tuple[int, int] | None = None,
    form: Form,
) -> Float[Tensor, "B H 1 V"]:
    """One query over the keys that it sees, or over all if it sees most of them."""
    i, j = query[:, None, :, None], key[:, None, None]
    seen = (pattern.contains(i, j) & (j >= 0) & (j <= i))[:, :, 0]
    seen = F.pad(seen, (k.shape[2] - key.shape[1], 0), value=True)
    n, count = seen.shape[2], seen.cumsum(2)
    most = int(count[..., -1].max())
    if 2 * most > n:
        return attend_rows(q, k, v, None if seen.all() else seen[:, :, None])
    nth = torch.arange(1, most + 1).expand(*count.shape[:2], most).contiguous()
    index = torch.searchsorted(count, nth)
    there = (index < n)[:, :, None]  # not where a head sees fewer
    index = index.clamp(max=n - 1).expand(*k.shape[:2], most)
    k, v = take_each(k, index), take_each(v, index)
    return attend_rows(q, k, v, None if there.all() else there)


def unfit_step(q, k, v, *, store=None, form: Form, **options) -> str | None:
    if store is not None:
        return "the keys of a bounded reach are seen almost all"
    return None if q.shape[2] == 1 else "it is for a single token"
