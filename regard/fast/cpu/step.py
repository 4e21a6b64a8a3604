"""One token of a stream (see `functional.pattern_stream`) over the keys that its pattern names, or over all if it sees most of them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.functional.pattern_stream import seen_pairs
from regard.functional.patterns import Pattern
from regard.functional.rows import Form, attend as attend_rows, take_each


def attend(
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
    E = k.shape[2] - key.shape[1]
    seen = seen_pairs(pattern, query[:, None, :, None], key[:, None, None], E)[:, :, 0]
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


def unfit(q, k, v, *, store=None, form: Form, **options) -> str | None:
    if store is not None:
        return "the keys of a bounded reach are seen almost all"
    return None if q.shape[2] == 1 else "it is for a single token"
