"""Causal sums over a piece of the sequence, forwards and backwards, for kernels that go through it piece by piece.

    y_i = a_i S + sum_{j <= i} (a_i e_j) v_j,   d_i = a_i z + sum_{j <= i} a_i e_j,   S' = S + sum_j e_j v_j^T,   z' = z + sum_j e_j

What a piece needs is made, used while it is in cache, and made again in the backward, which goes from the last piece to
the first; features of a whole sequence would be fresh memory at every call, which costs more than the sums. Between
pieces stands the state. A scale that changes along the sequence (a running maximum, a decay) is taken at the end of a
piece, and where it changes within one by more than e^RANGE, the piece is halved: factors on either side of a product
then stay in the range of the numbers, and a matrix product serves for them all.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK = 128
BYTES = 1 << 18  # of one tensor of features of a piece: several stay in a core's cache
RANGE = 40.0


def in_pieces(*inputs: Tensor) -> bool:
    """Whether to go piece by piece: elsewhere a few large products are better, or no step can depend on numbers."""
    on_cpu = all(x.device.type == "cpu" and x.numel() for x in inputs)
    return on_cpu and not torch.compiler.is_compiling()


def kept(*inputs: Tensor | None) -> bool:
    """Whether a backward may follow, for which the states between the pieces have to be kept."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def run(function: type[torch.autograd.Function], how: Any, *inputs: Tensor | None) -> Tensor:
    """function(how, *inputs), with the inputs in autocast's dtype where it is on; no other step is left to autocast."""
    if not torch.is_autocast_enabled("cpu"):
        return function.apply(how, *inputs)
    dtype = torch.get_autocast_dtype("cpu")
    lower = (x if x is None or x.dtype == torch.float64 else x.to(dtype) for x in inputs)
    with torch.autocast("cpu", enabled=False):
        return function.apply(how, *lower)


def examples(like: Float[Tensor, "B H T K"], width: int) -> Iterator[slice]:
    """Groups of examples whose pieces are small; mostly one is enough."""
    B, H, T = like.shape[:3]
    group = max(1, BYTES // max(1, like.element_size() * H * min(CHUNK, T) * width))
    return (slice(b, min(b + group, B)) for b in range(0, B, group))


class Rows:
    """The pieces of T tokens, in order: `for rows in pieces`, in which `pieces.halve(rows)` brings the two halves instead."""

    def __init__(self, T: int):
        self._left = [slice(t, min(t + CHUNK, T)) for t in range(0, T, CHUNK)][::-1]

    def __iter__(self) -> Iterator[slice]:
        while self._left:
            yield self._left.pop()

    def halve(self, rows: slice) -> None:
        middle = (rows.start + rows.stop) // 2
        self._left += [slice(middle, rows.stop), slice(rows.start, middle)]


def moves_far(change: Float[Tensor, "*b"]) -> bool:
    """Whether a scale, in log, changes by more than RANGE anywhere."""
    return not math.isfinite(top := change.max().item()) or top > RANGE


def cut(x: Float[Tensor, "B H T K"], group: slice, rows: slice) -> Float[Tensor, "b t K"]:
    """A piece of some examples, their heads one after another."""
    return x[group, :, rows].flatten(0, 1)


def put(x: Float[Tensor, "B H T K"], group: slice, rows: slice, piece: Tensor) -> None:
    """The inverse of `cut`."""
    target = x[group, :, rows]
    target.copy_(piece.view(target.shape))


class Sums(NamedTuple):
    """What a piece gives, and the state after it. Without z there is no d."""

    y: Float[Tensor, "b t V"]
    d: Float[Tensor, "b t 1"] | None
    S: Float[Tensor, "b M V"]
    z: Float[Tensor, "b M 1"] | None


def sums(
    a: Float[Tensor, "b t M"],
    e: Float[Tensor, "b t M"],
    v: Float[Tensor, "b t V"],
    S: Float[Tensor, "b M V"],
    z: Float[Tensor, "b M 1"] | None = None,
) -> Sums:
    """Cost per token: 2 t (M + V) inside the piece, half of it above the diagonal, and 4 M V for the state."""
    P = (a @ e.mT).tril_()
    d = None if z is None else P.sum(-1, keepdim=True, dtype=z.dtype) + a @ z.to(a.dtype)
    y = (P @ v).baddbmm_(a, S.to(a.dtype))
    z = None if z is None else z + e.sum(1, dtype=z.dtype)[..., None]
    return Sums(y, d, added(S, e.mT, v), z)


class Gradients(NamedTuple):
    a: Float[Tensor, "b t M"]
    e: Float[Tensor, "b t M"]
    v: Float[Tensor, "b t V"]
    S: Float[Tensor, "b M V"]
    z: Float[Tensor, "b M 1"] | None


def sums_backward(
    a: Float[Tensor, "b t M"],
    e: Float[Tensor, "b t M"],
    v: Float[Tensor, "b t V"],
    before: tuple[Float[Tensor, "b M V"], Float[Tensor, "b M 1"] | None],
    of_sums: tuple[Float[Tensor, "b t V"], Float[Tensor, "b t 1"] | None],
    after: tuple[Float[Tensor, "b M V"], Float[Tensor, "b M 1"] | None],
) -> Gradients:
    """before: S, z. of_sums: dy, dd. after: dS', dz', from the pieces that follow.

    With P = tril(a e^T) and its gradient D = tril(dy v^T + dd).
    """
    (S, z), (dy, dd), (dS, dz) = before, of_sums, after
    D = dy @ v.mT
    D = (D if dd is None else D.add_(dd)).tril_()
    da = (D @ e).baddbmm_(dy, S.to(a.dtype).mT)
    de = (D.mT @ a).baddbmm_(v, dS.to(a.dtype).mT)
    P = torch.bmm(a, e.mT, out=D).tril_()
    dv = (P.mT @ dy).baddbmm_(e, dS.to(a.dtype))
    if z is None or dd is None or dz is None:
        return Gradients(da, de, dv, added(dS, a.mT, dy), None)
    da.addcmul_(dd, z.to(a.dtype).mT)
    de.add_(dz.to(a.dtype).mT)
    return Gradients(da, de, dv, added(dS, a.mT, dy), added(dz, a.mT, dd))


def added(
    S: Float[Tensor, "b M V"], x: Float[Tensor, "b M t"], y: Float[Tensor, "b t V"]
) -> Float[Tensor, "b M V"]:
    """S + x y. A state is kept in float32 at least."""
    return torch.baddbmm(S, x, y) if S.dtype == x.dtype else S + x @ y
