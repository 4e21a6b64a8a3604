"""Attention with synthesized logits (Synthesizer, Tay et al. 2020, arXiv 2005.00743).

    y_i = sum_j w_ij v_j,   w_i = softmax over the allowed j of L_ij

Logits that are products of factors may be the scores of dot-product attention, and then run on the fused kernel.
Others are computed for a tile of queries of some heads at a time, and again in the backward. Logits that all examples
share give weights once for all of them. Cost: 2 T S V operations per head, and in the backward twice that, beside the
cost of the logits.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.errors import ShapeError
from regard.core.mask import OPEN, Mask
from regard.functional.choice import Impl
from regard.functional.rows import masked_softmax
from regard.functional.shared.blocks import by_tiles, hidden_pairs, tiles, visible_keys
from regard.functional.shared.implementation import Cut, autocast_dtype, cut
from regard.functional.shared.numerics import add_product, wide_type
from regard.functional.shared.recompute import twice_differentiable
from regard.functional.softmax import softmax_attention
from regard.functional.synthetic.logits import Logits, Product, SynthesizedLogits, with_bias

GRAIN = 8  # columns: the fused kernels of other devices want multiples of it


def synthesizer_attention(
    logits: Logits,
    v: Float[Tensor, "B H S V"],
    *,
    T: int,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """softmax(logits) v over the allowed keys, for T queries; a query without a key gives zero.

    logits(rows, S) -> [b H t S] for these queries and the first S keys. SynthesizedLogits have a backward of their own;
    other functions are differentiated by autograd.
    """
    how = cut("synthetic", impl, v)
    if not isinstance(logits, SynthesizedLogits):
        return _by_autograd(logits, v, T, mask, how)
    v = v.to(autocast_dtype(v) or v.dtype)
    if isinstance(logits, Product) and _are_scores(logits, v, how):
        return _as_scores(logits, v, T, mask, how, impl)
    tensors = logits.tensors
    of_examples = (*tensors, *(() if mask.only_causal else _restrictions(mask)))
    apart = any(z.shape[0] > 1 for z in of_examples)

    def fast(v: Tensor, *tensors: Tensor) -> Float[Tensor, "B H T V"]:
        if apart:
            return _Attention.apply(v, T, mask, how, logits, *tensors)
        together = rearrange(v, "b h s v -> 1 h s (b v)")
        y = _Attention.apply(together, T, mask, how, logits, *tensors)
        return rearrange(y, "1 h t (b v) -> b h t v", b=v.shape[0])

    def plain(v: Tensor, *tensors: Tensor) -> Float[Tensor, "B H T V"]:
        return _by_autograd(lambda rows, S: logits.of(tensors, rows, S), v, T, mask, how)

    return twice_differentiable(fast, plain, v, *tensors)


def synthesizer_weights(
    logits: Logits, T: int, S: int, *, mask: Mask = OPEN, device: torch.device | None = None
) -> Float[Tensor, "b H T S"]:
    """The weights that `synthesizer_attention` applies."""
    return masked_softmax(logits(slice(0, T), S), mask.dense(T, S, device=device))


def to_columns(logits: Float[Tensor, "b H T n"], S: int) -> Float[Tensor, "b H T S"]:
    """Logits of n positions for S >= n columns of a store; those that no token can reach are to be masked."""
    missing = S - logits.shape[-1]
    return F.pad(logits, (0, missing)) if missing else logits


def _restrictions(mask: Mask) -> tuple[Tensor, ...]:
    return tuple(z for z in (mask.valid, mask.pairwise, mask.shift) if z is not None)


def _are_scores(logits: Product, v: Float[Tensor, "B H S V"], how: Cut) -> bool:
    """True if the fused kernel is faster: it computes weights for each example, and needs factors as wide as values.

    Where products cost little beside the rest (not float32 on a CPU), narrow factors may be widened.
    """
    own = any(z.shape[0] == v.shape[0] for z in logits.tensors)
    is_cheap = not how.tiled or v.dtype.itemsize < 4
    return own and (is_cheap or 2 * logits.left.shape[3] >= v.shape[3])


def _as_scores(
    logits: Product, v: Float[Tensor, "B H S V"], T: int, mask: Mask, how: Cut, impl: Impl
) -> Float[Tensor, "B H T V"]:
    """Queries and keys are the factors, padded with zeros to one width for all three."""
    B, H, S, V = v.shape
    given = zip(logits.tensors, (T, S, S), strict=False)
    left, right = with_bias(
        *(_first(z, n).to(v.dtype).expand(B, H, *z[0, 0, :n].shape) for z, n in given)
    )
    width = max(left.shape[3], V)
    width += 0 if how.tiled else -width % GRAIN
    q, k, values = (F.pad(z, (0, width - z.shape[3])) for z in (left, right, v))
    return softmax_attention(q, k, values, mask=mask, scale=1.0, impl=impl)[..., :V]


def _first(z: Shaped[Tensor, "b H N *F"], n: int) -> Shaped[Tensor, "b H n *F"]:
    """The first n positions; the fused kernel does not check that there are so many."""
    if z.shape[2] < n:
        raise ShapeError(f"logits for {z.shape[2]} positions meet {n} tokens")
    return z[:, :, :n]


def _by_autograd(
    logits: Logits, v: Float[Tensor, "B H S V"], T: int, mask: Mask, how: Cut
) -> Float[Tensor, "B H T V"]:
    S, tile = v.shape[2], _tile(v, how)

    def attend(rows: slice, v: Tensor) -> Float[Tensor, "B H t V"]:
        seen = visible_keys(mask, T, S, rows)
        allowed = mask.dense(T, S, device=v.device, rows=rows, cols=seen)
        return masked_softmax(logits(rows, seen.stop), allowed).to(v.dtype) @ v[:, :, seen]

    return by_tiles(attend, T, tile, v)


def _tile(v: Float[Tensor, "B H S V"], how: Cut) -> int:
    """Queries of a tile: on a device, so many that weights for all examples and heads fit into the room."""
    return how.queries(math.prod(v.shape[:3]) * wide_type(v).itemsize)


Piece = tuple[slice, slice]  # examples, heads


def _pieces(v: Float[Tensor, "B H S V"], how: Cut, tile: int) -> Iterator[Piece]:
    """Heads of one example, or all heads of some examples, whose tiles of weights fit into the room."""
    B, H, S = v.shape[:3]
    size = tile * max(1, S) * wide_type(v).itemsize
    heads = max(how.threads, how.room // size)
    for h in tiles(H, min(H, heads)):
        for b in tiles(B, max(1, heads // H)):
            yield b, h


def _of(z: Shaped[Tensor, "b h *n"], piece: Piece) -> Shaped[Tensor, "c g *n"]:
    """Examples and heads of a piece; one where all share it."""
    return z[tuple(some if n > 1 else slice(0, 1) for some, n in zip(piece, z.shape, strict=False))]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, T: int, mask: Mask, how: Cut, logits: SynthesizedLogits, *tensors):
        B, H, S, V = v.shape
        y = v.new_empty(B, T, H, V).transpose(1, 2)  # the layout that the layer after it reads
        tile = _tile(v, how)
        for piece in _pieces(v, how, tile):
            values, mine = v[piece].contiguous(), [_of(z, piece) for z in tensors]
            for rows in tiles(T, tile):
                cols = visible_keys(mask, T, S, rows)
                parts = zip(mine, logits.parts(rows, cols.stop), strict=True)
                found = logits.tile(cols.stop, *(z[:, :, *part] for z, part in parts))
                weights = _weights(found, values, mask, T, piece, rows)
                y[piece][:, :, rows] = weights.to(v.dtype) @ values[:, :, cols]
        ctx.save_for_backward(v, *tensors)
        ctx.mask, ctx.how, ctx.logits, ctx.T = mask, how, logits, T
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """With w the weights: dv = w^T dy, dL = w (dy v^T - delta), delta_i = sum_j w_ij (dy v^T)_ij."""
        v, *tensors = ctx.saved_tensors
        mask, how, logits, T, S = ctx.mask, ctx.how, ctx.logits, ctx.T, v.shape[2]
        moving, tile = any(ctx.needs_input_grad[5:]), _tile(v, how)
        dv = torch.zeros_like(v, dtype=wide_type(v))
        gradients = [torch.zeros_like(z, dtype=wide_type(z)) if moving else z for z in tensors]
        for piece in _pieces(v, how, tile):
            values, mine = v[piece].contiguous(), [_of(z, piece) for z in tensors]
            mine_d = [_of(z, piece) for z in gradients]
            columns = values.flatten(0, 1).mT  # gradients of them, stored so, cost half the time
            dvalues = columns.new_zeros(columns.shape, dtype=dv.dtype)
            for rows in tiles(T, tile):
                cols = visible_keys(mask, T, S, rows)
                places = logits.parts(rows, cols.stop)
                parts = [z[:, :, *part] for z, part in zip(mine, places, strict=True)]
                found = logits.tile(cols.stop, *parts)
                weights = _weights(found, values, mask, T, piece, rows)
                dy_t = dy[piece][:, :, rows]
                here = weights.to(v.dtype).flatten(0, 1)
                add_product(dvalues[:, :, cols], dy_t.flatten(0, 1).mT, here)
                if not moving:
                    continue
                dweights = (dy_t @ values[:, :, cols].mT).to(weights.dtype)
                dlogits = torch._softmax_backward_data(
                    dweights, weights, -1, weights.dtype, grad_input=dweights
                )
                found = logits.pull(dlogits, cols.stop, *parts)
                for whole, part, d in zip(mine_d, places, found, strict=True):
                    here = whole[:, :, *part]
                    here += d.sum_to_size(here.shape)
            dv[piece] = dvalues.mT.unflatten(0, values.shape[:2])
        if not moving:
            return dv.to(v.dtype), *(None for _ in range(4)), *(None for _ in tensors)
        pairs = zip(gradients, tensors, strict=True)
        return dv.to(v.dtype), *(None for _ in range(4)), *(g.to(z.dtype) for g, z in pairs)


def _weights(
    logits: Float[Tensor, "b h t s"],
    values: Float[Tensor, "c g S V"],
    mask: Mask,
    T: int,
    piece: Piece,
    rows: slice,
) -> Float[Tensor, "c g t s"]:
    """Softmax over the allowed keys; changes the logits in place, except those that heads or examples share."""
    S, shape = values.shape[2], (*values.shape[:2], *logits.shape[2:])
    logits = logits.to(wide_type(logits))
    logits = logits if logits.shape == shape else logits.expand(shape).contiguous()
    hidden = hidden_pairs(mask, T, S, rows, visible_keys(mask, T, S, rows), logits.device)
    if hidden is None:
        return _softmax_(logits)
    pairs = _of(hidden.pairs, piece)
    logits[:, :, *hidden.place].masked_fill_(pairs, -math.inf)
    weights = _softmax_(logits)
    if not (mask.only_causal and T == S):  # some query may see nothing
        weights.masked_fill_(pairs.all(-1, keepdim=True), 0)
    return weights


def _softmax_(logits: Float[Tensor, "b h t s"]) -> Float[Tensor, "b h t s"]:
    """In their memory where that is contiguous, which the compiler asks for."""
    return torch.softmax(logits, -1, out=logits if logits.is_contiguous() else None)
