"""What plain forms share: the line that each begins with, softmax over given pairs, tiles that are computed again, copies by position, number types.

`impl` says who computes:

    "auto"      the first entry of `regard.fast` for this operation and device that serves the call; else the plain form
    "plain"     plain PyTorch: every request, every device, derivatives of any order
    "fused" ..  an entry of `regard.fast`, or an error that says why it cannot serve
    Form(..)    one of these names, with the sizes in which work is cut

The plain form also runs under `torch.func`, `torch.export` and second derivatives. Without `regard.fast` it is all there is.

`torch.exp` on a CPU takes 20 to 200 times as long for -inf, or where the result vanishes, of which masked scores are full.
`torch.exp2` does not: exp(x) = 2^(x log2 e), with |x| 2^-24 relative error.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.compiler import is_compiling, is_exporting
from torch.utils.checkpoint import checkpoint

from regard.core import LARGEST, Mask, OptionError, Queries, UnknownNameError, UnsupportedError
from regard.functional.held import with_own

TILE = 256
"""Queries whose scores are held at once."""

LOG2_E = math.log2(math.e)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Form:
    """A name that `impl` takes, with sizes; None: the operation's own.

    tile: queries whose scores are held at once. chunk: tokens of a chunk of time. room: bytes of temporaries of each thread.
    Raises OptionError for a size that is not a positive integer.
    """

    name: str = "auto"
    tile: int | None = None
    chunk: int | None = None
    room: int | None = None

    def __post_init__(self):
        for name in ("tile", "chunk", "room"):
            size = getattr(self, name)
            if size is not None and (type(size) is not int or not 1 <= size <= LARGEST):
                raise OptionError(f"Form: {name} must be a positive integer, got {size!r}")


Impl = str | Form


def choose(
    operation: str, plain: Callable[..., Made], impl: Impl = "auto", **sizes: int
) -> Callable[..., Made]:
    """`plain` in these sizes, or what replaces it; to be called with every tensor that may need a gradient by position, q first."""
    own = partial(plain, **{name: getattr(impl, name, None) or n for name, n in sizes.items()})
    alone = getattr(impl, "name", impl) == "plain" or plain_alone()
    if (fast := None if alone else replacements()) is None:
        return own
    return partial(fast.run, operation, own, impl if isinstance(impl, Form) else Form(impl))


def plain_alone() -> bool:
    """True where the plain form alone is right: under torch.func's transforms, forward-mode AD, and while a program is exported."""
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return transformed or is_exporting()


def of_any_length(T: int) -> bool:
    """True while a program for rows of any length T is made; asked under `is_compiling()` alone where each call counts."""
    if not is_compiling():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return is_exporting() or not has_static_value(T)


def longer(z: Tensor, n: int, dim: int) -> Tensor:
    """z, of which the first n entries of this axis are wanted; with one more in a program for any length, which could not cut all of z."""
    if is_compiling() and of_any_length(n):
        return torch.cat([z, z.narrow(dim, 0, 1)], dim)
    return z


def replacements() -> Any:
    """`regard.fast`, or None where that folder was left out."""
    if not _FAST:
        return None
    from regard import fast

    return fast


_FAST = find_spec("regard.fast") is not None


def check_impl(who: str, impl: Impl, *operations: str) -> Impl:
    """`impl`, if one of a mixer's operations has it.

    Raises UnknownNameError, or UnsupportedError where none has, or where it needs a package that is not installed.
    """
    name = getattr(impl, "name", impl)
    if name in ("auto", "plain"):
        return impl
    fast = replacements()
    known = () if fast is None else fast.NAMES
    if name not in known:
        raise UnknownNameError("impl", name, ["auto", "plain", *known])
    has = fast.entries(*operations)
    if name not in has:
        raise UnsupportedError(
            f"{who} has no implementation {name!r}. It has {', '.join(('plain', *has))}"
        )
    if lacks := has[name].lacks():
        raise UnsupportedError(f'{who}: impl={name!r} needs {lacks}, or use impl="plain"')
    return impl


@dataclass(frozen=True)
class Record:
    names: set[str]
    plain_instead: bool


record_of_this: ContextVar[Record | None] = ContextVar("record", default=None)


@contextmanager
def recorded(*, plain_instead: bool = False) -> Iterator[set[str]]:
    """The names of the entries that compute while it is open. plain_instead: the plain form does, whatever is recorded, to be counted."""
    record = Record(set(), plain_instead)
    token = record_of_this.set(record)
    try:
        yield record.names
    finally:
        record_of_this.reset(token)


def scores(
    q: Float[Tensor, "*#b T K"], k: Float[Tensor, "*#b S K"], scale: float | None = None
) -> Float[Tensor, "*b T S"]:
    """scale q k^T, in float32 at least: a large score that is rounded makes a weight that is wrong. scale: 1 / sqrt(K) by default."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    wide = torch.promote_types(q.dtype, torch.float32)
    return scale * q.to(wide) @ k.to(wide).mT


def masked_softmax(
    scores: Float[Tensor, "*B T S"], allowed: Bool[Tensor, "*b t S"]
) -> Float[Tensor, "*c T S"]:
    """Softmax over the allowed keys; a row without any gives zeros, with finite gradients."""
    some = allowed.any(-1, keepdim=True)
    weights = scores.masked_fill(some & ~allowed, torch.finfo(scores.dtype).min).softmax(-1)
    return torch.where(allowed, weights, 0)


def tiled(
    f: Callable[..., Float[Tensor, "*B t V"]],
    size: Impl | int | None,
    q: Shaped[Tensor, "*q T K"] | tuple[Tensor, ...],
    *others: Any,
    random: bool = False,
) -> Float[Tensor, "*y T V"]:
    """f(rows, q[rows], *others) for tiles of `size` queries (or the tile of an `impl`; none: TILE), one after the other; each is computed again in the backward.

    A bare loop would keep every tile for its backward. Under `torch.func`, and in a program for any length, it is one tile of all queries.
    q: or several tensors, all cut alike. random: f draws random numbers, the same ones both times.
    """
    size = (size if isinstance(size, int) else getattr(size, "tile", None)) or TILE
    cut = q if isinstance(q, tuple) else (q,)
    T = cut[0].shape[-2]
    if plain_alone() or (is_compiling() and of_any_length(T)) or T <= size:
        return f(slice(0, T), *cut, *others)
    parts = []
    for start, *part in zip(range(0, T, size), *(z.split(size, -2) for z in cut), strict=True):
        given = slice(start, start + part[0].shape[-2]), *part, *others
        parts.append(recomputed(f, *given, random=random) if torch.is_grad_enabled() else f(*given))
    return torch.cat(parts, -2)


def recomputed(
    f: Callable, *arguments: Any, when: bool = True, random: bool = False, **options: Any
) -> Any:
    """f(*arguments, **options); the backward calls it again, `when` asked and if there is one, a module with the parameters that it has now.

    random: it draws random numbers, the same ones both times.
    """
    if not when or not torch.is_grad_enabled() or plain_alone():
        return f(*arguments, **options)
    f = with_own(f) if isinstance(getattr(f, "__self__", f), nn.Module) else f
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
    first = (S * torch.arange(B * H, device=z.device)).view(B, H, *[1] * (at.ndim - 2))
    return z.flatten(0, 2).index_select(0, (first + at).flatten()).unflatten(0, at.shape)


def pick(z: Shaped[Tensor, "B H S K"], at: Int[Tensor, "b *n"]) -> Shaped[Tensor, "B H *n K"]:
    """z at positions of each row, which all heads share."""
    return take_each(z, at[:, None].expand(*z.shape[:2], *at.shape[1:]))


def first_places(x: Shaped[Tensor, "B T *D"]) -> Int[Tensor, "1 T"]:
    return upto(x.shape[1], x)[None]


def apart(z: Float[Tensor, "B T HK"], K: int) -> Queries:
    """The heads of K channels that are side by side."""
    return z.unflatten(2, (-1, K)).transpose(1, 2)


def upto(n: int, like: Tensor) -> Int[Tensor, "n"]:
    """0 .. n - 1, on the device of `like`."""
    return torch.arange(n, device=like.device)


def side_by_side(z: Queries) -> Float[Tensor, "B T HK"]:
    return z.transpose(1, 2).flatten(2)


def in_chunks(
    x: Shaped[Tensor, "B H T M"], C: int, value: float | None = None
) -> Shaped[Tensor, "B H N C M"]:
    """Filled up with `value`, or zeros. A program for any length has two more chunks: an axis of one would be a case of its own."""
    B, H, T, M = x.shape
    N = (T + C - 1) // C
    if is_compiling() and of_any_length(T):
        N += 2
    if N * C != T:  # a padding of nothing is a copy
        x = F.pad(x, (0, 0, 0, N * C - T), value=value)
    return x.reshape(B, H, N, C, M)


def in_time(z: Shaped[Tensor, "B H N C *M"], T: int) -> Shaped[Tensor, "B H T *M"]:
    """Chunks one after the other, without what filled the last one up."""
    return z.flatten(2, 3)[:, :, :T]


def with_ones(v: Float[Tensor, "*b V"]) -> Float[Tensor, "*b W"]:
    """One more channel, of ones: where values are summed, it sums their weights."""
    return F.pad(v, (0, 1), value=1.0)


def fitted(chunk: int, T: int) -> int:
    """Tokens of a chunk: no more than there are, where their number is known."""
    return chunk if is_compiling() and of_any_length(T) else min(chunk, T)


def mixed(w: Float[Tensor, "b *h T S"], v: Float[Tensor, "B *h S V"]) -> Float[Tensor, "B *h T V"]:
    """w v; weights that all examples share are not copied for each."""
    if w.shape[0] == v.shape[0]:
        return w @ v
    y = w[0] @ v.movedim(0, -2).flatten(-2)
    return y.unflatten(-1, (v.shape[0], -1)).movedim(-2, 0)


def cleared(
    z: Float[Tensor, "B H S K"], valid: Bool[Tensor, "B S"] | None
) -> Float[Tensor, "B H S K"]:
    """z, and zero where there is no token, whatever is there."""
    return z if valid is None else z.masked_fill(~valid[:, None, :, None], 0)


def grouped(z: Float[Tensor, "B G *s K"], H: int) -> Float[Tensor, "B H *s K"]:
    """Each of the G heads for H / G neighbours."""
    return z if z.shape[1] == H else z.repeat_interleave(H // z.shape[1], 1)


def wide_type(z: Tensor) -> torch.dtype:
    """The type in which sums are kept: float32 at least."""
    return torch.promote_types(z.dtype, torch.float32)


def widened(*tensors: Any) -> tuple:
    """Tensors in `wide_type`, in which the sums of a stream are kept: a sum of 16 bits stops growing after some hundred tokens."""
    return tuple(None if z is None else z.to(wide_type(z)) for z in tensors)


def ranged(*tensors: Any) -> tuple:
    """float16 in float32: its numbers end at 65,504, and sums of products that a quotient or a norm follows pass that. All else as it is."""
    return tuple(z.float() if getattr(z, "dtype", None) == torch.float16 else z for z in tensors)


def autocast_dtype(z: Tensor) -> torch.dtype | None:
    """The dtype that autocast casts to on z's device; None if autocast is off there."""
    kind = z.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def unrounded(z: Tensor) -> AbstractContextManager[object]:
    """Turns autocast off on z's device: rounding must not move a choice, nor a denominator that may be near zero."""
    kind = z.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def unit_norm(z: Float[Tensor, "*b K"], eps: float = 1e-12) -> Float[Tensor, "*b K"]:
    """z / max(|z|, eps), in float32 at least; a row of zeros stays zero. eps: see `least`."""
    wide = z.to(wide_type(z))
    squares = wide.square().sum(-1, keepdim=True)  # far faster than a norm on a CPU
    return (wide * squares.clamp_min(least(z, eps) ** 2).rsqrt()).type_as(z)


def least(z: Tensor, eps: float) -> float:
    """The least number to divide by in z's type: eps, or 0.008 in float16, where gradients are multiplied by 1 / eps."""
    return max(eps, torch.finfo(z.dtype).tiny ** 0.5)


def exp(x: Tensor) -> Tensor:
    # log2 e: by name it would be an input of a compiled program
    return (x * 1.4426950408889634).exp2_()


def exp_(x: Tensor) -> Tensor:
    """exp(x), written over x."""
    return x.mul_(LOG2_E).exp2_()
