"""Attention with synthesized logits (see `functional.synthesizer`) in tiles that stay in cache, with a backward by hand.

A tile of logits is computed from the parts of their tensors that it needs, and its softmax takes its place; in the backward again. The
gradients of the parts are added where they belong.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mask import OPEN, Mask
from regard.fast.cpu.blocks import Cut, cut, hidden_pairs, tiles
from regard.functional.rows import Form, add_product, autocast_dtype, visible_keys, wide_type
from regard.functional.synthesizer import Logits, blend, outer, product, table

Part = tuple[slice, ...]  # of a tensor, after its axes of examples and heads
Piece = tuple[slice, slice]  # examples, heads


def attend(
    v: Float[Tensor, "B H S V"],
    *tensors: Tensor,
    logits: Logits,
    T: int,
    mask: Mask = OPEN,
    form: Form,
) -> Float[Tensor, "B H T V"]:
    how, v = cut(form, tile=64), v.to(autocast_dtype(v) or v.dtype)
    kind = kind_of(logits, tensors)
    asks = () if mask.only_causal else (mask.valid, mask.pairwise, mask.shift)
    given = (*kind.tensors, *(z for z in asks if z is not None))
    if any(z.shape[0] > 1 for z in given):
        return _Attention.apply(v, T, mask, how, kind, *kind.tensors)
    together = rearrange(v, "b h s v -> 1 h s (b v)")  # one matrix of weights for all examples
    y = _Attention.apply(together, T, mask, how, kind, *kind.tensors)
    return rearrange(y, "1 h t (b v) -> b h t v", b=v.shape[0])


def unfit(v: Tensor, *tensors: Tensor, logits: Logits, form: Form, **options) -> str | None:
    if all(member.make in KINDS for member in members_of(logits) or (logits,)):
        return None
    return "logits of one's own may hold parameters"


def kind_of(logits: Logits, tensors: Sequence[Tensor]) -> "Kind":
    """The logits of these tensors, in the place of their own."""
    members, given = members_of(logits), iter(tensors)
    if members is None:
        return KINDS[logits.make](*tensors)
    parts = [tuple(islice(given, len(member.of_queries))) for member in members]
    shares = next(given)
    kinds = [
        KINDS[member.make](*part, *islice(given, len(member.others)))
        for member, part in zip(members, parts, strict=True)
    ]
    return Blend(shares, tuple(kinds))


def members_of(logits: Logits) -> Sequence[Logits] | None:
    """Members of a blend; None: it is none."""
    make = logits.make
    return make.args[0] if isinstance(make, partial) and make.func is blend else None


class Kind(ABC):
    """Logits whose tiles, and the gradients of their parts, are computed from parts of `tensors`."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Float[Tensor, "#b #H *n"], ...]: ...

    @property
    def linear(self) -> tuple[int, ...]:
        """Places of the tensors in which, taken together, the logits are linear."""
        return (0,)

    @abstractmethod
    def parts(self, rows: slice, S: int) -> tuple[Part, ...]:
        """For each tensor, the part that the logits of these queries for the first S keys need."""

    @abstractmethod
    def tile(
        self, S: int, *parts: Tensor, share: Float[Tensor, "#b #H 1 1"] | None = None
    ) -> Float[Tensor, "b H t S"]:
        """Logits from those parts, or share times them, in new memory."""

    @abstractmethod
    def pull(
        self, dlogits: Float[Tensor, "B H t S"], S: int, *parts: Tensor
    ) -> tuple[Float[Tensor, "B H *m"], ...]:
        """Gradients of the parts from the gradient of their tile, not yet summed over what shares them."""

    def scaled(self, share: Tensor | None, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        """Parts whose logits are share times those of these."""
        if share is None:
            return parts
        return [_times(z, share) if i in self.linear else z for i, z in enumerate(parts)]


@dataclass(frozen=True, eq=False)
class Table(Kind):
    table: Float[Tensor, "#b #H N M"]

    @property
    def tensors(self):
        return (self.table,)

    def parts(self, rows, S):
        return ((rows, slice(S)),)

    def tile(self, S, *parts, share=None):
        return parts[0].clone() if share is None else parts[0] * share

    def pull(self, dlogits, S, *parts):
        return (dlogits,)


@dataclass(frozen=True, eq=False)
class Product(Kind):
    left: Float[Tensor, "#b #H N F"]
    right: Float[Tensor, "#b #H M F"]
    bias: Float[Tensor, "#b #H M"] | None = None

    @property
    def tensors(self):
        return (self.left, self.right, *(() if self.bias is None else (self.bias,)))

    def parts(self, rows, S):
        return ((rows,), (slice(S),), (slice(S),))[: len(self.tensors)]

    def tile(self, S, *parts, share=None):
        left, right, *bias = _narrow(*self.scaled(share, parts))
        logits = left @ right.mT
        return logits.add_(bias[0][:, :, None]) if bias else logits

    @property
    def linear(self):
        return (0,) if self.bias is None else (0, 2)

    def pull(self, dlogits, S, *parts):
        left, right, d, *_ = _narrow(*parts[:2], dlogits)
        gradients = d @ right, d.mT @ left
        return gradients if self.bias is None else (*gradients, dlogits.sum(-2))


def _narrow(*operands: Tensor) -> tuple[Tensor, ...]:
    """Operands of a product in the narrowest of their types."""
    dtype = operands[0].dtype
    for z in operands[1:]:
        dtype = z.dtype if z.dtype.itemsize < dtype.itemsize else dtype
    return tuple(z.to(dtype) for z in operands)


@dataclass(frozen=True, eq=False)
class Outer(Kind):
    left: Float[Tensor, "#b #H N P"]
    right: Float[Tensor, "#b #H N Q"]

    @property
    def tensors(self):
        return (self.left, self.right)

    def parts(self, rows, S):
        return ((rows, slice(-(-S // self.right.shape[-1]))), (rows,))

    def tile(self, S, *parts, share=None):
        left, right = (z.to(wide_type(z)) for z in self.scaled(share, parts))
        return (left[..., None] * right[..., None, :]).flatten(-2)[..., :S]

    def pull(self, dlogits, S, *parts):
        left, right = (z.to(wide_type(z)) for z in parts)
        missing = left.shape[-1] * right.shape[-1] - S
        d = F.pad(dlogits, (0, missing)) if missing else dlogits
        d = d.unflatten(-1, (left.shape[-1], right.shape[-1]))
        return (right[..., None, :] @ d.mT)[..., 0, :], (left[..., None, :] @ d)[..., 0, :]


@dataclass(frozen=True, eq=False)
class Blend(Kind):
    shares: Float[Tensor, "M H"]
    members: tuple[Kind, ...]

    @property
    def tensors(self):
        own = self.shares[:, None, :, None, None].unbind(0)
        return (*own, *(z for member in self.members for z in member.tensors))

    def parts(self, rows, S):
        own = ((),) * len(self.members)
        return (*own, *(part for member in self.members for part in member.parts(rows, S)))

    @property
    def linear(self):
        return tuple(range(len(self.members)))

    def tile(self, S, *parts, share=None):
        members = self._each(self.scaled(share, parts))
        return reduce(torch.add, (member.tile(S, *own, share=a) for a, member, own in members))

    def pull(self, dlogits, S, *parts):
        """A share's gradient is sum dL L^m, which is that of any tensors in which L^m is linear: no tile is made again."""
        shares: list[Tensor] = []
        others: list[Tensor] = []
        for share, member, own in self._each(parts):
            found = member.pull(dlogits, S, *own)
            products = [(found[i] * own[i]).flatten(2).sum(2) for i in member.linear]
            shares.append(reduce(torch.add, products)[..., None, None])
            others += [_times(d, share) for d in found]
        return *shares, *others

    def _each(self, parts: Sequence[Tensor]) -> Iterator[tuple[Tensor, Kind, Sequence[Tensor]]]:
        """Share, member and parts of the member."""
        shares, rest = parts[: len(self.members)], parts[len(self.members) :]
        for share, member in zip(shares, self.members, strict=True):
            n = len(member.tensors)
            yield share, member, rest[:n]
            rest = rest[n:]


def _times(z: Float[Tensor, "#b #H *m"], share: Float[Tensor, "#b #H 1 1"]) -> Tensor:
    return z * share.view(*share.shape[:2], *[1] * (z.dim() - 2))


KINDS = {table: Table, product: Product, outer: Outer}


def _pieces(v: Float[Tensor, "B H S V"], how: Cut) -> Iterator[Piece]:
    """Heads of one example, or all heads of some examples, whose tiles of weights fit into the room."""
    B, H, S = v.shape[:3]
    size = how.tile * max(1, S) * wide_type(v).itemsize
    heads = max(how.threads, how.room // size)
    for h in tiles(H, min(H, heads)):
        for b in tiles(B, max(1, heads // H)):
            yield b, h


def _of(z: Shaped[Tensor, "b h *n"], piece: Piece) -> Shaped[Tensor, "c g *n"]:
    """Examples and heads of a piece; one where all share it."""
    return z[tuple(some if n > 1 else slice(0, 1) for some, n in zip(piece, z.shape, strict=False))]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, T: int, mask: Mask, how: Cut, logits: Kind, *tensors):
        B, H, S, V = v.shape
        y = v.new_empty(B, T, H, V).transpose(1, 2)  # the layout that the layer after it reads
        for piece in _pieces(v, how):
            values, mine = v[piece].contiguous(), [_of(z, piece) for z in tensors]
            for rows in tiles(T, how.tile):
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
        moving = any(ctx.needs_input_grad[5:])
        dv = torch.zeros_like(v, dtype=wide_type(v))
        gradients = [torch.zeros_like(z, dtype=wide_type(z)) if moving else z for z in tensors]
        for piece in _pieces(v, how):
            values, mine = v[piece].contiguous(), [_of(z, piece) for z in tensors]
            mine_d = [_of(z, piece) for z in gradients]
            columns = values.flatten(0, 1).mT  # gradients of them, stored so, cost half the time
            dvalues = columns.new_zeros(columns.shape, dtype=dv.dtype)
            for rows in tiles(T, how.tile):
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
