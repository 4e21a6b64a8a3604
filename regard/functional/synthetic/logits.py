"""Where logits come from that no pair of tokens makes, a block at a time and backwards.

    Table      L_ij = R_ij                          Product   L_ij = R_i . C_j (+ b_j)
    Outer      L_ij = A_ip C_iq,  j = p b + q       Blend     L_ij = sum_m a_m L^m_ij

Every tensor is [b H ..], with size 1 where examples or heads share it. A source is called for its logits as they are; its
`part` serves the kernel of `synthesizer_attention`, which takes some heads (a `Slab`), and of them a block at a time: in
units of log 2, since 2^x costs the same for all numbers, and back from the gradient of a block to what made it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.functional.shared.numerics import LOG2_E

LN_2 = math.log(2)

Logits = Callable[[slice, int], Tensor]  # these queries, the first S keys -> [b H t S]


class Slab(NamedTuple):
    """Heads of examples that are computed together, as the first axis of three."""

    examples: slice
    heads: slice
    T: int  # queries
    S: int  # keys

    @property
    def shape(self) -> tuple[int, int]:
        return (
            self.examples.stop - self.examples.start,
            self.heads.stop - self.heads.start,
        )

    def of(self, whole: Float[Tensor, "b h *m"]) -> Float[Tensor, "c g *m"]:
        one = slice(0, 1)
        return whole[
            one if whole.shape[0] == 1 else self.examples,
            one if whole.shape[1] == 1 else self.heads,
        ]

    def cut(self, whole: Float[Tensor, "b h *m"]) -> Float[Tensor, "g *m"]:
        return self.of(whole).expand(*self.shape, *whole.shape[2:]).flatten(0, 1)

    def first(self, whole: Float[Tensor, "b h *m"]) -> bool:
        """Whether no slab before this one shares its numbers of the whole."""
        of_examples = whole.shape[0] > 1 or self.examples.start == 0
        return of_examples and (whole.shape[1] > 1 or self.heads.start == 0)

    def put(self, whole: Float[Tensor, "b h *m"], part: Float[Tensor, "g *n"]) -> None:
        """The gradient of `cut`, into that of the whole, of which the part may be the beginning; it needs no zeros before."""
        mine, n = self.of(whole), part.shape[1]
        part = part.unflatten(0, self.shape).sum_to_size(*mine.shape[:2], *part.shape[1:])
        if self.first(whole):
            mine[:, :, :n] = part
            mine[:, :, n:] = 0
        else:
            mine[:, :, :n] += part


@runtime_checkable
class Part(Protocol):
    """A source's logits for one slab, each query's with a shift added where one is given [g T 1].

    Made with gradients (of the tensors' shapes, not yet filled), it puts its own there.
    """

    def logits(self, rows: slice, cols: slice) -> Float[Tensor, "g t s"]:
        """log2(e) L and the shift, in new memory, in float32 at least."""
        ...

    def pull(self, dlogits: Float[Tensor, "g t s"], rows: slice, cols: slice) -> None:
        """Takes the gradient of L of this block."""
        ...

    def close(self) -> None:
        """After the last block."""
        ...


@runtime_checkable
class Build(Protocol):
    def __call__(
        self,
        slab: Slab,
        tensors: Sequence[Tensor],
        shift: Float[Tensor, "g T 1"] | None = None,
        gradients: Sequence[Tensor] | None = None,
    ) -> Part: ...


class Source(ABC):
    """Logits that the kernel can make by blocks; called, it gives them as they are, to autograd."""

    @property
    def grain(self) -> int:
        """Blocks of keys should begin at multiples of it."""
        return 1

    @abstractmethod
    def __call__(self, rows: slice, S: int) -> Float[Tensor, "b H t S"]: ...

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]: ...

    @property
    @abstractmethod
    def build(self) -> Build: ...


# ------------------------------------------------------------------ products that know two types


def accumulate(total: Tensor, a: Float[Tensor, "g m k"], b: Float[Tensor, "g k n"]) -> None:
    """total += a b in place, where operands of two types meet in the narrower."""
    if total.dtype == a.dtype == b.dtype:
        total.baddbmm_(a, b)
    else:
        total += product(a, b)


def product(a: Float[Tensor, "g m k"], b: Float[Tensor, "g k n"]) -> Float[Tensor, "g m n"]:
    narrow = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)
    return torch.bmm(a.to(narrow), b.to(narrow)).to(torch.promote_types(narrow, torch.float32))


# ------------------------------------------------------------------ a table


@dataclass(frozen=True, eq=False)
class Table(Source):
    table: Float[Tensor, "#b #H N M"]

    def __call__(self, rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        return self.table[:, :, rows, :S]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)

    @property
    def build(self) -> Build:
        return _TablePart


class _TablePart:
    """Its gradient is as large as memory allows, and every number of it is written once."""

    def __init__(
        self,
        slab: Slab,
        tensors: Sequence[Tensor],
        shift: Float[Tensor, "g T 1"] | None = None,
        gradients: Sequence[Tensor] | None = None,
    ):
        self.slab, self.table = slab, slab.of(tensors[0])
        self.shift = None if shift is None else shift.unflatten(0, slab.shape)
        if gradients is not None:
            self.gradient, self.first = slab.of(gradients[0]), slab.first(gradients[0])
            self.reached: dict[int, tuple[slice, int]] = {}  # queries, and where their keys end

    def logits(self, rows: slice, cols: slice) -> Float[Tensor, "g t s"]:
        block = self.table[:, :, rows, cols]
        block = block.to(torch.promote_types(block.dtype, torch.float32))
        if self.shift is not None:
            return torch.add(self.shift[:, :, rows], block, alpha=LOG2_E).flatten(0, 1)
        return (block * LOG2_E).expand(*self.slab.shape, -1, -1).flatten(0, 1)

    def pull(self, dlogits: Float[Tensor, "g t s"], rows: slice, cols: slice) -> None:
        self.reached[rows.start] = rows, cols.stop
        block = self.gradient[:, :, rows, cols]
        part = dlogits.unflatten(0, self.slab.shape).sum_to_size(block.shape)
        if self.first:
            block.copy_(part)
        else:
            block += part

    def close(self) -> None:
        if not self.first:
            return
        end = 0
        for rows, stop in self.reached.values():
            self.gradient[:, :, rows, stop:] = 0
            end = max(end, rows.stop)
        self.gradient[:, :, end:] = 0


# ------------------------------------------------------------------ a product of two factors


@dataclass(frozen=True, eq=False)
class Product(Source):
    left: Float[Tensor, "#b #H N F"]
    right: Float[Tensor, "#b #H M F"]
    bias: Float[Tensor, "#b #H M"] | None = None

    def __call__(self, rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        logits = self.left[:, :, rows] @ self.right[:, :, :S].transpose(-1, -2)
        return logits if self.bias is None else logits + self.bias[:, :, None, :S]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        both = (self.left, self.right)
        return both if self.bias is None else (*both, self.bias)

    @property
    def build(self) -> Build:
        return _ProductPart


def with_bias(
    left: Float[Tensor, "*b T F"],
    right: Float[Tensor, "*c S F"],
    bias: Float[Tensor, "*c S"] | None = None,
) -> tuple[Tensor, Tensor]:
    """The bias as one more column of the right factor, which meets a one in the left."""
    if bias is None:
        return left, right
    return F.pad(left, (0, 1), value=1.0), torch.cat([right, bias[..., None]], -1)


class _ProductPart:
    """Its bias is one more column of the right factor, its shift one of the left."""

    def __init__(
        self,
        slab: Slab,
        tensors: Sequence[Tensor],
        shift: Float[Tensor, "g T 1"] | None = None,
        gradients: Sequence[Tensor] | None = None,
    ):
        self.slab, self.gradients, self.shift = slab, gradients, shift
        given, *others = tensors
        left = slab.cut(given[:, :, : slab.T])
        self.right, *bias = (slab.cut(z[:, :, : slab.S]) for z in others)
        left, columns = with_bias(left, self.right, *bias)
        self.left = left * LOG2_E
        if shift is not None and left.dtype == columns.dtype == shift.dtype:  # not a wider one
            self.left, self.shift = torch.cat([self.left, shift], -1), None
            columns = F.pad(columns, (0, 1), value=1.0)
        self.columns = columns.transpose(1, 2).contiguous()
        if gradients is not None:
            wide = torch.promote_types(left.dtype, torch.float32)
            self.dleft = torch.zeros(
                *left.shape[:2], self.right.shape[2], dtype=wide, device=left.device
            )
            self.dcolumns = torch.zeros_like(self.columns, dtype=wide)

    def logits(self, rows: slice, cols: slice) -> Float[Tensor, "g t s"]:
        logits = product(self.left[:, rows], self.columns[:, :, cols])
        return logits if self.shift is None else logits.add_(self.shift[:, rows])

    def pull(self, dlogits: Float[Tensor, "g t s"], rows: slice, cols: slice) -> None:
        accumulate(self.dleft[:, rows], dlogits, self.right[:, cols])
        accumulate(self.dcolumns[:, :, cols], self.left[:, rows].transpose(1, 2), dlogits)

    def close(self) -> None:
        assert self.gradients is not None
        dright, width = self.dcolumns.mul_(LN_2).transpose(1, 2), self.right.shape[2]
        self.slab.put(self.gradients[0], self.dleft)
        self.slab.put(self.gradients[1], dright[..., :width])
        if len(self.gradients) == 3:
            self.slab.put(self.gradients[2], dright[..., width])


# ------------------------------------------------------------------ outer products, one for each query


@dataclass(frozen=True, eq=False)
class Outer(Source):
    left: Float[Tensor, "#b #H N P"]
    right: Float[Tensor, "#b #H N Q"]

    def __call__(self, rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        first = -(-S // self.right.shape[-1])
        left, right = self.left[:, :, rows, :first], self.right[:, :, rows]
        return (left[..., None] * right[..., None, :]).flatten(-2)[..., :S]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.left, self.right)

    @property
    def build(self) -> Build:
        return _OuterPart

    @property
    def grain(self) -> int:
        return self.right.shape[-1]


class _OuterPart:
    def __init__(
        self,
        slab: Slab,
        tensors: Sequence[Tensor],
        shift: Float[Tensor, "g T 1"] | None = None,
        gradients: Sequence[Tensor] | None = None,
    ):
        left, right = (slab.cut(z) for z in tensors)
        wide = torch.promote_types(left.dtype, torch.float32)
        self.slab, self.gradients, self.shift = slab, gradients, shift
        self.left, self.right = left.to(wide) * LOG2_E, right.to(wide).contiguous()
        if gradients is not None:
            self.dleft, self.dright = torch.zeros_like(self.left), torch.zeros_like(self.right)

    def _first(self, cols: slice) -> slice:
        """The p of these keys; the last may be cut short."""
        b = self.right.shape[2]
        return slice(cols.start // b, -(-cols.stop // b))

    def logits(self, rows: slice, cols: slice) -> Float[Tensor, "g t s"]:
        left = self.left[:, rows, self._first(cols)][..., None]
        right = self.right[:, rows][:, :, None]
        logits = (left * right).flatten(2)[..., : cols.stop - cols.start]
        return logits if self.shift is None else logits.add_(self.shift[:, rows])

    def pull(self, dlogits: Float[Tensor, "g t s"], rows: slice, cols: slice) -> None:
        p, b = self._first(cols), self.right.shape[2]
        missing = (p.stop - p.start) * b - dlogits.shape[2]
        whole = F.pad(dlogits, (0, missing)) if missing else dlogits
        # [p q] of each query: its products with a vector from either side
        pairs = whole.unflatten(2, (-1, b)).flatten(0, 1)
        left = self.left[:, rows, p].flatten(0, 1)[:, None]
        right = self.right[:, rows].flatten(0, 1)[:, None]
        shape = dlogits.shape[:2]
        self.dleft[:, rows, p] += torch.bmm(right, pairs.transpose(1, 2))[:, 0].unflatten(0, shape)
        self.dright[:, rows] += torch.bmm(left, pairs)[:, 0].unflatten(0, shape)

    def close(self) -> None:
        assert self.gradients is not None
        self.slab.put(self.gradients[0], self.dleft)
        self.slab.put(self.gradients[1], self.dright.mul_(LN_2))


# ------------------------------------------------------------------ a weighted sum of others


@dataclass(frozen=True, eq=False)
class Blend(Source):
    shares: Float[Tensor, "M H"]
    members: tuple[Source, ...]

    def __call__(self, rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        return blended(self.shares, self.members)(rows, S)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        own = self.shares[:, None, :, None, None].unbind(0)
        return (*own, *(z for member in self.members for z in member.tensors))

    @property
    def build(self) -> Build:
        kinds = tuple((member.build, len(member.tensors)) for member in self.members)
        return partial(_BlendPart, kinds=kinds)

    @property
    def grain(self) -> int:
        return math.lcm(*(member.grain for member in self.members))


def blended(shares: Float[Tensor, "M H"], members: Sequence[Logits]) -> Logits:
    """sum_m a_m L^m"""

    def logits(rows: slice, S: int) -> Float[Tensor, "b H t S"]:
        parts = [
            share[:, None, None] * member(rows, S).to(share.dtype)
            for share, member in zip(shares, members, strict=True)
        ]
        return reduce(torch.add, parts)

    return logits


class _BlendPart:
    def __init__(
        self,
        slab: Slab,
        tensors: Sequence[Tensor],
        shift: Float[Tensor, "g T 1"] | None = None,
        gradients: Sequence[Tensor] | None = None,
        *,
        kinds: Sequence[tuple[Build, int]],
    ):
        self.slab, self.gradients, self.shift = slab, gradients, shift
        n = len(kinds)
        self.shares = [slab.cut(z) for z in tensors[:n]]
        self.heard = [torch.zeros_like(z) for z in self.shares]  # their gradients
        self.members = []
        start = n
        for build, count in kinds:
            own = slice(start, start + count)
            theirs = None if gradients is None else gradients[own]
            self.members.append(build(slab, tensors[own], gradients=theirs))
            start += count

    def logits(self, rows: slice, cols: slice) -> Float[Tensor, "g t s"]:
        total = None
        for share, member in zip(self.shares, self.members, strict=True):
            part = member.logits(rows, cols).mul_(share)
            total = part if total is None else total.add_(part)
        assert total is not None
        return total if self.shift is None else total.add_(self.shift[:, rows])

    def pull(self, dlogits: Float[Tensor, "g t s"], rows: slice, cols: slice) -> None:
        for m, (share, member) in enumerate(zip(self.shares, self.members, strict=True)):
            part = member.logits(rows, cols).mul_(dlogits)
            self.heard[m] += part.sum((1, 2), keepdim=True)
            member.pull(dlogits * share, rows, cols)

    def close(self) -> None:
        assert self.gradients is not None
        for m, member in enumerate(self.members):
            self.slab.put(self.gradients[m], self.heard[m] * LN_2)
            member.close()
