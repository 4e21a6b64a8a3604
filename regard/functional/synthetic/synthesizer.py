"""Attention whose logits are given, not scored (Synthesizer, Tay et al. 2020, arXiv 2005.00743).

    y_i = sum_j w_ij v_j,   w_i = softmax over the allowed j of L_ij

Logits that are products of factors may be taken as the scores of dot-product attention, and then go through the fused
kernel, as wide as values or factors are. Where they come from another `Source`, heads and blocks of pairs are gone through one after another, so that a block's logits
stay in cache while they are made, turned into weights in place, used and forgotten. Rows are summed as they are, and
again below their running maximum only where that leaves the range of numbers; the backward makes a block again from the
log-sum-exp of its rows. Logits that all examples share give weights once for all of them. Cost: 2 T S V operations per head, in the backward
twice that, beside the source's own for its logits (made twice) and their gradient.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.errors import ShapeError
from regard.core.mask import OPEN, Mask
from regard.functional.shared.recompute import recomputed
from regard.functional.softmax.dense import masked_softmax, softmax_attention
from regard.functional.synthetic.logits import (
    Build,
    Logits,
    Part,
    Product,
    Slab,
    Source,
    accumulate,
    product,
    with_bias,
)

QUERIES, KEYS = 128, 2048  # of a block on a CPU, for each thread: its logits take 1 MiB
GRAIN = 8  # columns, of which the fused kernels of other devices want multiples
RANGE = 2.0**60  # of a row's sum of exponentials, either way, within which no maximum is needed


def synthesizer_attention(
    logits: Logits, v: Float[Tensor, "B H S V"], *, T: int, mask: Mask = OPEN
) -> Float[Tensor, "B H T V"]:
    """softmax(logits) v over the allowed keys, for T queries; a query without a key gives zero.

    logits(rows, S) -> [b H t S] of these queries for the first S keys. A function that is no source is differentiated by
    autograd, some queries at a time, and called again in the backward of long sequences.
    """
    if not isinstance(logits, Source):
        return _by_autograd(logits, v, T, mask)
    tensors = logits.tensors
    kind = v.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        v = v.to(torch.get_autocast_dtype(kind))
    B = v.shape[0]
    if isinstance(logits, Product) and _are_scores(logits, v):
        return _as_scores(logits, v, T, mask)
    hidden = Hidden(mask, T, v.shape[2])
    if hidden.examples > 1 or any(z.shape[0] > 1 for z in tensors):
        return _BlockAttention.apply(v, T, hidden, logits.build, logits.grain, *tensors)
    together = rearrange(v, "b h s v -> 1 h s (b v)")
    y = _BlockAttention.apply(together, T, hidden, logits.build, logits.grain, *tensors)
    return rearrange(y, "1 h t (b v) -> b h t v", b=B)


def _are_scores(logits: Product, v: Float[Tensor, "B H S V"]) -> bool:
    """Whether the fused kernel is better: it makes weights for each example, and wants factors as wide as values.

    Where products cost little beside the rest (not float32 on a CPU), narrow factors may as well be made wider.
    """
    own = any(z.shape[0] == v.shape[0] for z in logits.tensors)
    is_cheap = v.device.type != "cpu" or v.dtype.itemsize < 4
    return own and (is_cheap or 2 * logits.left.shape[3] >= v.shape[3])


def _as_scores(
    logits: Product, v: Float[Tensor, "B H S V"], T: int, mask: Mask
) -> Float[Tensor, "B H T V"]:
    """Queries and keys are the factors. The fused kernel wants one width for all three, and zeros change nothing."""
    B, H, S, V = v.shape
    given = zip(logits.tensors, (T, S, S), strict=False)
    left, right = with_bias(
        *(_first(z, n).to(v.dtype).expand(B, H, *z[0, 0, :n].shape) for z, n in given)
    )
    width = max(left.shape[3], V)
    width += 0 if v.device.type == "cpu" else -width % GRAIN
    q, k, values = (F.pad(z, (0, width - z.shape[3])) for z in (left, right, v))
    return softmax_attention(q, k, values, mask=mask, scale=1.0)[..., :V]


def _first(z: Shaped[Tensor, "b H N *F"], n: int) -> Shaped[Tensor, "b H n *F"]:
    """Of a factor that reaches so far; the fused kernel does not look."""
    if z.shape[2] < n:
        raise ShapeError(f"logits for {z.shape[2]} positions meet {n} tokens")
    return z[:, :, :n]


def synthesizer_weights(
    logits: Logits, T: int, S: int, *, mask: Mask = OPEN, device: torch.device | None = None
) -> Float[Tensor, "b H T S"]:
    """The weights that `synthesizer_attention` applies."""
    return masked_softmax(logits(slice(0, T), S), mask.dense(T, S, device=device))


def at_positions(
    logits: Float[Tensor, "B H T n"], position: Int[Tensor, "B S"]
) -> Float[Tensor, "B H T S"]:
    """The columns of logits over positions that belong to stored keys; those at -1 are to be masked."""
    index = position.clamp_min(0)[:, None, None, :]
    return logits.gather(-1, index.expand(*logits.shape[:-1], -1))


def _by_autograd(logits: Logits, v: Tensor, T: int, mask: Mask) -> Float[Tensor, "B H T V"]:
    S = v.shape[2]
    parts = []
    for start in range(0, T, QUERIES):
        rows = slice(start, min(start + QUERIES, T))
        seen = rows.stop if mask.causal and T == S else S  # later keys are never allowed

        def attend(v: Tensor, rows=rows, seen=seen) -> Tensor:
            allowed = mask.dense(T, S, device=v.device, rows=rows)[..., :seen]
            return masked_softmax(logits(rows, seen), allowed) @ v

        v_seen = v[:, :, :seen]
        parts.append(recomputed(attend, v_seen) if T > QUERIES else attend(v_seen))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


class Hidden:
    """The pairs that a mask forbids, block by block; where it forbids none, nothing is done."""

    def __init__(self, mask: Mask, T: int, S: int):
        self.mask, self.T, self.S = mask, T, S
        self.aligned = mask.causal and T == S and mask.shift is None
        triangle = self.aligned and mask.only_causal
        free = mask.valid is None and mask.pairwise is None and not mask.causal
        self.dense = not (free or triangle)

    @property
    def examples(self) -> int:
        """For how many examples it differs."""
        mask = self.mask
        if not self.dense:
            return 1
        return max(len(z) for z in (mask.valid, mask.pairwise, mask.shift, [0]) if z is not None)

    def seen(self, rows: slice) -> int:
        """How many keys these queries can meet: later ones are never allowed."""
        return rows.stop if self.aligned else self.S

    def hide(self, logits: Float[Tensor, "g t s"], slab: Slab, rows: slice, cols: slice) -> Tensor:
        """In place: -inf where a key may not be seen."""
        if self.dense:
            allowed = self.mask.dense(self.T, self.S, device=logits.device, rows=rows, cols=cols)
            bias = torch.zeros_like(allowed, dtype=logits.dtype).masked_fill_(~allowed, -math.inf)
            logits.unflatten(0, slab.shape).add_(slab.of(bias))
        elif self.aligned and cols.stop > rows.start + 1:
            # only keys beside the queries can be later than one
            first = max(rows.start, cols.start)
            t = rows.stop - rows.start
            later = torch.full((t, t), -math.inf, dtype=logits.dtype, device=logits.device).triu_(1)
            logits[..., first - cols.start :] += later[
                :, first - rows.start : cols.stop - rows.start
            ]
        return logits


def _slabs(v: Tensor, T: int, block: int) -> Iterator[Slab]:
    """Heads of one example, or all heads of some, whose blocks of this many pairs fit together; examples come last."""
    B, H, S = v.shape[:3]
    if v.device.type != "cpu":
        room = B * H
    else:
        threads = 1 if torch.compiler.is_compiling() else torch.get_num_threads()
        room = max(1, threads * QUERIES * KEYS // max(1, block))
    nh = min(H, room)
    nb = min(B, max(1, room // H))
    for h in range(0, H, nh):
        for b in range(0, B, nb):
            yield Slab(slice(b, min(b + nb, B)), slice(h, min(h + nh, H)), T, S)


def _sides(v: Tensor, T: int, grain: int) -> tuple[int, int]:
    """Queries and keys of a block."""
    S = max(1, v.shape[2])
    keys = max(grain, KEYS // grain * grain) if v.device.type == "cpu" else S
    return min(T, QUERIES), min(S, keys)


class _Sums(NamedTuple):
    """2^top total and 2^top mixed are the sums over the keys of a row: of 2^logit, and of 2^logit v."""

    total: Float[Tensor, "g t 1"]
    mixed: Float[Tensor, "g t V"]
    top: Float[Tensor, "g t 1"]

    @property
    def in_range(self) -> bool:
        low, high = torch.aminmax(self.total)
        return bool((low > 1 / RANGE) & (high < RANGE))

    def below(self, top: Float[Tensor, "g t 1"]) -> "_Sums":
        """The same with another top; in place."""
        shrunk = self.top.sub_(top).exp2_()
        return _Sums(self.total.mul_(shrunk), self.mixed.mul_(shrunk), top)


def _sums(
    part: Part,
    values: Float[Tensor, "g S V"],
    hidden: Hidden,
    slab: Slab,
    rows: slice,
    keys: int,
    *,
    shifted: bool,
) -> _Sums:
    """shifted: whether top is the highest logit of a row, else zero."""
    g, t, V = values.shape[0], rows.stop - rows.start, values.shape[2]
    wide = torch.promote_types(values.dtype, torch.float32)
    lowest = torch.finfo(wide).min / 2 if shifted else 0.0
    sums = _Sums(
        total=values.new_zeros(g, t, 1, dtype=wide),
        mixed=values.new_zeros(g, t, V, dtype=wide),
        top=values.new_full((g, t, 1), lowest, dtype=wide),
    )
    for cols in _steps(0, hidden.seen(rows), keys):
        logits = hidden.hide(part.logits(rows, cols), slab, rows, cols)
        if shifted:
            sums = sums.below(torch.maximum(sums.top, logits.amax(-1, keepdim=True)))
            logits.sub_(sums.top)
        weights = logits.exp2_()
        sums.total.add_(weights.sum(-1, keepdim=True))
        accumulate(sums.mixed, weights, values[:, cols])
        del logits, weights
    return sums


def _needs_shift(v: Tensor) -> bool:
    """Whether rows are summed below their maximum at once: where looking at a sum would wait, or its range is small."""
    return v.device.type != "cpu" or torch.compiler.is_compiling() or v.dtype == torch.float16


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, v: Float[Tensor, "B H S V"], T: int, hidden: Hidden, build: Build, grain: int, *tensors
    ) -> Float[Tensor, "B H T V"]:
        B, H, _, V = v.shape
        wide = torch.promote_types(v.dtype, torch.float32)
        y = v.new_empty(B, T, H, V).transpose(1, 2)  # as the layer after it reads it
        lse = v.new_empty(B, H, T, 1, dtype=wide)
        queries, keys = _sides(v, T, grain)
        shifted = _needs_shift(v)
        for slab in _slabs(v, T, queries * keys):
            part, values = build(slab, tensors), slab.cut(v).contiguous()
            for rows in _steps(0, T, queries):
                sums = _sums(part, values, hidden, slab, rows, keys, shifted=shifted)
                if not shifted and not sums.in_range:
                    shifted = True
                    sums = _sums(part, values, hidden, slab, rows, keys, shifted=shifted)
                total = (
                    sums.total.clamp_min_(1) if shifted else sums.total
                )  # 1 of the highest, if any
                slab.put(y[:, :, rows], sums.mixed.div_(total))
                slab.put(lse[:, :, rows], total.log2_().add_(sums.top))
        ctx.save_for_backward(v, y, lse, *tensors)
        ctx.hidden, ctx.build, ctx.grain = hidden, build, grain
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """With w the weights: dv = w^T dy, dL = w (dy v^T - delta), delta_i = dy_i . y_i, which is one more column of dy."""
        v, y, lse, *tensors = ctx.saved_tensors
        hidden, T, wide = ctx.hidden, y.shape[2], lse.dtype
        moving = any(ctx.needs_input_grad[5:])
        dv = torch.empty_like(v)
        gradients = [torch.empty_like(z, dtype=wide) for z in tensors] if moving else None
        queries, keys = _sides(v, T, ctx.grain)
        for slab in _slabs(v, T, queries * keys):
            dy_slab, shift = slab.cut(dy), -slab.cut(lse)
            part = ctx.build(slab, tensors, shift, gradients)
            delta = (dy_slab.to(wide) * slab.cut(y)).sum(-1, keepdim=True)
            left = torch.cat([dy_slab, -delta.to(dy.dtype)], -1)
            values = slab.cut(v)
            columns = torch.cat([values, torch.ones_like(values[..., :1])], -1)
            columns = columns.transpose(1, 2).contiguous()
            dvalues = torch.zeros_like(columns[:, :-1], dtype=wide)
            for rows in _steps(0, T, queries):
                for cols in _steps(0, hidden.seen(rows), keys):
                    weights = hidden.hide(part.logits(rows, cols), slab, rows, cols).exp2_()
                    dy_t = dy_slab[:, rows].transpose(1, 2)
                    accumulate(dvalues[:, :, cols], dy_t, weights)
                    if moving:
                        dlogits = product(left[:, rows], columns[:, :, cols]).mul_(weights)
                        part.pull(dlogits, rows, cols)
                        del dlogits
                    del weights
            slab.put(dv, dvalues.transpose(1, 2))
            if moving:
                part.close()
        if gradients is None:
            return dv, None, None, None, None, *(None for _ in tensors)
        pairs = zip(gradients, tensors, strict=True)
        return dv, None, None, None, None, *(g.to(z.dtype) for g, z in pairs)


def _steps(start: int, stop: int, step: int) -> Iterator[slice]:
    for at in range(start, stop, step):
        yield slice(at, min(at + step, stop))
