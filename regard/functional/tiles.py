"""Exact softmax attention over a plan of tiles: some queries meet some keys, and what they allow is computed there.

Parts of one query's softmax that lie in different tiles are merged by their log-sum-exp. Nothing of size [T S] is
stored; the backward recomputes each tile's weights from the final log-sum-exp, so that its cost too follows the plan.
"""

import math
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

Keys = range | tuple[range, ...] | Int[Tensor, "s"] | Int[Tensor, "H s"]


class Tile(NamedTuple):
    rows: range  # queries
    cols: Keys  # each once; -1 in a tensor: none
    part: int  # tiles of one part share no query


Allowed = Callable[[Tile], Bool[Tensor, "b h t s"]]
Alike = Callable[[Tile], Hashable | None]


def tile_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    tiles: list[Tile],
    allowed: Allowed,
    alike: Alike = lambda tile: None,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over the pairs that `allowed(tile)` says; a query with no key in any tile gives zero.

    alike: neighbours with one answer, unless it is None, allow the same pairs, which are then asked for once.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _TileAttention.apply(q, k, v, tiles, _Remembered(allowed, alike), scale)


class Pairs(NamedTuple):
    """What a tile allows: as truth values, as a bias of 0 and -inf, and the rows that see nothing."""

    allowed: Bool[Tensor, "b h t s"]
    bias: Float[Tensor, "b h t s"]
    none: Bool[Tensor, "b h t"]

    @classmethod
    def of(cls, allowed: Bool[Tensor, "b h t s"], dtype: torch.dtype) -> "Pairs":
        bias = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        return cls(allowed, bias.masked_fill_(~allowed, -math.inf), ~allowed.any(-1))


class _Remembered:
    """Pairs of tiles; most tiles of a window look like the last one, and a mask costs nearly as much as what it masks."""

    def __init__(self, allowed: Allowed, alike: Alike):
        self._allowed, self._alike = allowed, alike
        self._last: tuple[Hashable, Pairs] | None = None

    def __call__(self, tile: Tile, dtype: torch.dtype) -> Pairs:
        likeness = None if torch.compiler.is_compiling() else self._alike(tile)
        if likeness is not None and self._last is not None and self._last[0] == likeness:
            return self._last[1]
        pairs = Pairs.of(self._allowed(tile), dtype)
        if likeness is not None:
            self._last = likeness, pairs
        return pairs


class _TileAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, tiles, allowed, scale):
        merging = any(tile.part > 0 for tile in tiles)
        if any(isinstance(tile.cols, Tensor) for tile in tiles):
            k, v = k.contiguous(), v.contiguous()
        wide = torch.promote_types(q.dtype, torch.float32)
        y = q.new_zeros(*q.shape[:3], v.shape[3], dtype=wide if merging else q.dtype)
        total = q.new_full(q.shape[:3], -math.inf, dtype=wide)
        for tile in tiles:
            t = _slice(tile.rows)
            part, lse = attend(
                q[:, :, t],
                take(k, tile.cols),
                take(v, tile.cols),
                allowed(tile, q.dtype),
                scale,
            )
            if tile.part > 0:
                both = torch.logaddexp(total[:, :, t], lse)
                some = both.masked_fill(both == -math.inf, 0)
                part = (
                    y[:, :, t] * (total[:, :, t] - some).exp()[..., None]
                    + part * (lse - some).exp()[..., None]
                )
                lse = both
            y[:, :, t] = part
            total[:, :, t] = lse
        y = y.to(q.dtype)
        ctx.save_for_backward(q, k, v, y, total)
        ctx.tiles, ctx.allowed, ctx.scale = tiles, allowed, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, total = ctx.saved_tensors
        total = total.masked_fill(total == -math.inf, 0)
        wide = total.dtype
        dq, dk, dv = (torch.zeros(z.shape, dtype=wide, device=z.device) for z in (q, k, v))
        for tile in ctx.tiles:
            t = _slice(tile.rows)
            grads = attend_backward(
                dy[:, :, t],
                q[:, :, t],
                take(k, tile.cols),
                take(v, tile.cols),
                y[:, :, t],
                total[:, :, t],
                ctx.allowed(tile, q.dtype),
                ctx.scale,
            )
            add(dq, tile.rows, grads[0])
            add(dk, tile.cols, grads[1])
            add(dv, tile.cols, grads[2])
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def positions(of: Keys, device: torch.device) -> Int[Tensor, "*h n"]:
    if isinstance(of, Tensor):
        return of
    if isinstance(of, range):
        return torch.arange(of.start, of.stop, of.step, device=device)
    return torch.cat([positions(r, device) for r in (range(0), *of)])


def _slice(r: range) -> slice:
    return slice(r.start, r.stop, r.step)


def take(z: Float[Tensor, "B H S K"], cols: Keys) -> Float[Tensor, "B H s K"]:
    if isinstance(cols, range):
        return z[:, :, _slice(cols)]
    cols = positions(cols, z.device)
    if cols.dim() == 1:
        return z.index_select(2, cols)
    return z.flatten(1, 2).index_select(1, _flat(cols, z.shape[2])).unflatten(1, cols.shape)


def add(whole: Float[Tensor, "B H S K"], cols: Keys, part: Float[Tensor, "B H s K"]) -> None:
    if isinstance(cols, range):
        whole[:, :, _slice(cols)] += part
        return
    cols = positions(cols, whole.device)
    if cols.dim() == 1:
        whole.index_add_(2, cols, part.to(whole.dtype))
    else:
        flat = _flat(cols, whole.shape[2])
        whole.view(whole.shape[0], -1, whole.shape[3]).index_add_(
            1, flat, part.flatten(1, 2).to(whole.dtype)
        )


def _flat(cols: Int[Tensor, "H s"], S: int) -> Int[Tensor, "n"]:
    """Rows of [B, H * S, K]: whole rows are copied, where a gather would look up every number."""
    heads = torch.arange(cols.shape[0], device=cols.device)[:, None]
    return (cols.clamp(min=0) + heads * S).flatten()


def _fused(q: Tensor, v: Tensor) -> bool:
    return q.device.type in ("cpu", "meta") and q.shape[-1] == v.shape[-1]


def attend(q, k, v, pairs: Pairs, scale) -> tuple[Float[Tensor, "B H t V"], Float[Tensor, "B H t"]]:
    """Outputs, and the log-sum-exp of the scores; rows without a key: 0 and -inf."""
    none = pairs.none
    if _fused(q, v):
        y, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=pairs.bias, scale=scale
        )
        return y, lse.masked_fill(none, -math.inf)
    scores = _scores(q, k, pairs.allowed, scale)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(none, 0)[..., None]).exp()
    return weights.to(v.dtype) @ v, lse


def attend_backward(dy, q, k, v, y, lse, pairs: Pairs, scale) -> tuple[Tensor, Tensor, Tensor]:
    if _fused(q, v):
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            dy, q, k, v, y, lse, 0.0, False, attn_mask=pairs.bias, scale=scale
        )
    weights = (_scores(q, k, pairs.allowed, scale) - lse[..., None]).exp()
    dv = weights.to(dy.dtype).transpose(-1, -2) @ dy
    dweights = (dy @ v.transpose(-1, -2)).to(weights.dtype)
    delta = (dy.to(weights.dtype) * y).sum(-1, keepdim=True)
    dscores = (weights * (dweights - delta) * scale).to(q.dtype)
    return dscores @ k, dscores.transpose(-1, -2) @ q, dv


def _scores(q, k, allowed, scale) -> Float[Tensor, "B H t s"]:
    scores = (scale * q) @ k.transpose(-1, -2)
    return scores.to(torch.promote_types(q.dtype, torch.float32)).masked_fill(~allowed, -math.inf)
