"""Synthesized logits: [b H T S] numbers that no pair of tokens makes (Synthesizer, Tay et al. 2020, arXiv 2005.00743).

    Table      L_ij = R_ij                          Product   L_ij = R_i . C_j (+ b_j)
    Outer      L_ij = A_ip C_iq,  j = p b + q       Blend     L_ij = sum_m a_m L^m_ij

Their tensors are [b H ..], with size 1 where examples or heads share them. The kernel of `synthesizer_attention`
computes a tile of logits from the parts of the tensors that the tile needs, and adds the gradients of the parts where
they belong: slices under autograd would each have a gradient of the whole tensor's size.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.functional.shared.numerics import wide_type

Logits = Callable[
    [slice, int], Tensor
]  # queries, number of keys S -> [b H t S] for the first S keys
Part = tuple[slice, ...]  # of a tensor, after its axes of examples and heads


class SynthesizedLogits(ABC):
    """Called with queries and a number of keys, it gives the logits of a tile, differentiable in `tensors`."""

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

    def __call__(self, rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        return self.of(self.tensors, rows, S)

    def scaled(self, share: Tensor | None, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        """Parts whose logits are share times those of these."""
        if share is None:
            return parts
        return [_times(z, share) if i in self.linear else z for i, z in enumerate(parts)]

    def of(self, tensors: Sequence[Tensor], rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        """Logits from these tensors, in the place of its own."""
        places = zip(tensors, self.parts(rows, S), strict=True)
        return self.tile(S, *(z[:, :, *part] for z, part in places))


@dataclass(frozen=True, eq=False)
class Table(SynthesizedLogits):
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
class Product(SynthesizedLogits):
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


def with_bias(
    left: Float[Tensor, "*b T F"],
    right: Float[Tensor, "*c S F"],
    bias: Float[Tensor, "*c S"] | None = None,
) -> tuple[Tensor, Tensor]:
    """The bias as one more column of the right factor, with ones in that column of the left."""
    if bias is None:
        return left, right
    return F.pad(left, (0, 1), value=1.0), torch.cat([right, bias[..., None]], -1)


@dataclass(frozen=True, eq=False)
class Outer(SynthesizedLogits):
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
class Blend(SynthesizedLogits):
    shares: Float[Tensor, "M H"]
    members: tuple[SynthesizedLogits, ...]

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

    def _each(
        self, parts: Sequence[Tensor]
    ) -> Iterator[tuple[Tensor, SynthesizedLogits, Sequence[Tensor]]]:
        """Share, member and parts of the member."""
        shares, rest = parts[: len(self.members)], parts[len(self.members) :]
        for share, member in zip(shares, self.members, strict=True):
            n = len(member.tensors)
            yield share, member, rest[:n]
            rest = rest[n:]


def _times(z: Float[Tensor, "#b #H *m"], share: Float[Tensor, "#b #H 1 1"]) -> Tensor:
    return z * share.view(*share.shape[:2], *[1] * (z.dim() - 2))


def blended(shares: Float[Tensor, "M H"], members: Sequence[Logits]) -> Logits:
    """sum_m a_m L^m of any functions."""

    def logits(rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        parts = [
            share[:, None, None] * member(rows, S).to(share.dtype)
            for share, member in zip(shares, members, strict=True)
        ]
        return reduce(torch.add, parts)

    return logits
