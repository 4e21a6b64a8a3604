"""How a kernel runs: one value, `impl`, that changes speed and memory and never the result.

    "auto"       the first entry of IMPLEMENTATIONS that fits device, dtype, length and mask; else eager
    "eager"      plain PyTorch, which serves every request on every device
    "flex" ..    an entry of IMPLEMENTATIONS, or an error that says why it cannot serve
    Eager(...)   eager, with the sizes of the tiles and chunks that it works on

This is the only module that looks at device, compiler and caches. A kernel calls `choose` or `cut` and reads a `Cut`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.core.errors import OptionError, UnknownNameError, UnsupportedError
from regard.core.mask import Mask
from regard.core.packages import lacking

TILE, CHUNK = 256, 64
ROOM = 1 << 20  # bytes for each thread, unless the core's cache is smaller
SIZES: dict[str, tuple[int, int]] = {
    "clustered": (32, 32),
    "pattern": (128, 128),
    "synthetic": (64, 64),
    "window": (128, 64),
}
"""Default (tile, chunk) of the kernel families for which other sizes than TILE and CHUNK are faster."""


@dataclass(frozen=True)
class Eager:
    """Plain PyTorch, and how it cuts its work; None: chosen from the machine's facts.

    tile: queries whose scores are held at once. chunk: tokens in one step of a scan over time. room: bytes of
    temporaries held at once by each thread. Raises OptionError for what is not a positive integer.
    """

    tile: int | None = None
    chunk: int | None = None
    room: int | None = None

    def __post_init__(self):
        sizes = {"tile": self.tile, "chunk": self.chunk, "room": self.room}
        for name, size in sizes.items():  # torch.compile of 2.10 cannot read vars(self)
            if size is not None and (type(size) is not int or size < 1):
                raise OptionError(f"Eager: {name} must be a positive integer, got {size!r}")


Impl = Literal["auto", "eager", "flex", "fla"] | Eager


class Cut(NamedTuple):
    """The implementation that runs a call, and the sizes that eager works with."""

    name: str
    tile: int  # queries whose scores are held at once
    chunk: int  # tokens in one step of a scan over time
    room: int  # bytes of temporaries held at once, for all threads together
    threads: int  # that share the room
    tiled: bool  # True: loop over small tiles in reused memory. False: a few large operations
    readable: bool  # True if steps may depend on tensor values: reading them needs no device sync
    compiling: (
        bool  # True, compiled or under torch.func: lengths and patterns are known, values are not
    )
    concrete: bool  # True if tensors have values at all, if only after a device sync

    def queries(self, size: int) -> int:
        """Queries of a tile, each with temporaries of `size` bytes: on a device as many as fit into the room."""
        return self.tile if self.tiled else max(self.tile, self.room // max(1, size))


@dataclass(frozen=True)
class Implementation:
    """The calls that an implementation takes. `without`: mask fields it does not support. `shortest`: minimum length for "auto"."""

    family: str
    name: str
    devices: tuple[str, ...]  # where "auto" takes it
    dtypes: tuple[torch.dtype, ...]
    shortest: int
    about: str
    elsewhere: bool = False  # whether, named, it computes forward passes on other devices
    narrowest: int = 1  # channels of q
    causal_only: bool = False
    without: tuple[str, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()  # optional ones, each with its oldest version

    def lacks(self) -> str | None:
        """A package that is not installed, and what brings it."""
        return next(filter(None, (lacking(*package) for package in self.packages)), None)

    def serves(self, q: Tensor, mask: Mask) -> str | None:
        """None, or why not."""
        device, lacks = q.device.type, self.lacks()
        if lacks is not None:
            return f"it needs {lacks}"
        if device not in self.devices and not self.elsewhere:
            return f"it runs on {', '.join(self.devices)} alone, not on {device}"
        if device not in self.devices and q.requires_grad:
            return f"it has no backward pass on {device}"
        if q.dtype not in self.dtypes:
            return f"it computes in {', '.join(str(d) for d in self.dtypes)}, not {q.dtype}"
        if q.shape[-1] < self.narrowest:
            return f"it needs {self.narrowest} channels in a head, not {q.shape[-1]}"
        if self.causal_only and not mask.causal:
            return "it is for causal order alone"
        for field in self.without:
            if getattr(mask, field) is not None:
                return f"it does not take {field}"
        return None


_FLA = partial(
    Implementation,
    name="fla",
    devices=("cuda",),
    dtypes=(torch.bfloat16, torch.float16),  # it rounds float32 to 11 bits, whatever torch is told
    shortest=1024,
    causal_only=True,  # without an order two matrix products are all there is
)
IMPLEMENTATIONS = (
    Implementation(
        family="pattern",
        name="flex",
        devices=("cuda",),
        dtypes=(torch.float32, torch.bfloat16, torch.float16),
        shortest=1024,
        about="torch's FlexAttention, with a block mask built from the pattern",
        elsewhere=True,
        narrowest=16,
        without=("pairwise", "global_tokens"),
    ),
    _FLA(
        family="linear",
        packages=(("fla-core", "0.6"),),
        about="fla-core's chunked causal sums",
    ),
    _FLA(
        family="decayed linear",  # gates, and the running stabiliser of positive features
        packages=(("fla-core", "0.6"), ("triton", "3.7.1")),  # gradients before it: fla's issue 640
        about="fla-core's chunked causal sums with a decay",
    ),
)
NAMES = ("auto", "eager", *dict.fromkeys(entry.name for entry in IMPLEMENTATIONS))


def check_impl(who: str, impl: Impl, family: str | None = None) -> Impl:
    """`impl`, if kernels of this family have it. family=None: eager is all there is.

    Raises UnknownNameError, or UnsupportedError where this family has no such implementation.
    """
    if isinstance(impl, Eager):
        return impl
    if impl not in NAMES:
        raise UnknownNameError("impl", impl, NAMES)
    has = [entry.name for entry in IMPLEMENTATIONS if entry.family == family]
    if impl not in ("auto", "eager", *has):
        raise UnsupportedError(
            f"{who} has no implementation {impl!r}. It has {', '.join(('eager', *has))}"
        )
    for entry in IMPLEMENTATIONS:
        lacks = entry.lacks() if (entry.family, entry.name) == (family, impl) else None
        if lacks is not None:
            raise UnsupportedError(f'{who}: impl={impl!r} needs {lacks}, or use impl="eager"')
    return impl


@dataclass(frozen=True)
class _Record:
    names: set[str]
    eager_instead: bool


_record: ContextVar[_Record | None] = ContextVar("record", default=None)


@contextmanager
def recorded(*, eager_instead: bool = False) -> Iterator[set[str]]:
    """The names of the implementations that compute while it is open; empty where only kernels without a choice did.

    eager_instead: eager computes whatever is chosen and recorded, for a count of operations that sees them all.
    """
    record = _Record(set(), eager_instead)
    token = _record.set(record)
    try:
        yield record.names
    finally:
        _record.reset(token)


def choose(family: str, impl: Impl, q: Tensor, mask: Mask, *, plain: bool = True) -> Cut:
    """The implementation that computes, with eager's sizes. `plain`: nothing is asked that only eager can do.

    Raises UnsupportedError where a named one cannot serve.
    """
    name = _choice(family, impl, q, mask, plain)
    record = None if compiling() else _record.get()
    if record is not None:
        record.names.add(name)
        name = "eager" if record.eager_instead else name
    return cut(family, impl, q)._replace(name=name)


def cut(family: str, impl: Impl, *tensors: Tensor) -> Cut:
    """Eager's sizes for a kernel of this family on these tensors, which share a device."""
    given = impl if isinstance(impl, Eager) else Eager()
    device, compiling = tensors[0].device.type, _values_are_unknown()
    tiled = device in ("cpu", "meta") and not compiling
    tile, chunk = SIZES.get(family, (TILE, CHUNK))
    threads = torch.get_num_threads() if tiled else 1
    room = given.room or (min(core_cache(), ROOM) if tiled else 1 << 27)
    return Cut(
        "eager",
        given.tile or tile,
        given.chunk or chunk,
        room * threads,
        threads,
        tiled,
        readable=tiled and device == "cpu",
        compiling=compiling,
        concrete=device != "meta" and not compiling,
    )


def readable(z: Tensor) -> bool:
    """True if steps may depend on the values of z: no device sync, no compiler and no torch.func."""
    return z.device.type == "cpu" and not _values_are_unknown()


def concrete(z: Tensor) -> bool:
    """True if z has values, which may be read after a device sync."""
    return z.device.type != "meta" and not _values_are_unknown()


def constants(values: Sequence[float], like: Tensor) -> Tensor:
    """These numbers, in the type and on the device of `like`; without a copy from the host, which no CUDA graph holds."""
    if like.device.type == "cpu":
        return like.new_tensor(values)
    return torch.stack([like.new_full((), value) for value in values])


def compiling() -> bool:
    """True while a compiler traces: steps cannot depend on values, and what is compiled already is not compiled again."""
    return torch.compiler.is_compiling()


def compiles(z: Tensor) -> bool:
    """True if a kernel that is slow in plain PyTorch is compiled for z: on CUDA, unless its caller is compiled."""
    return z.device.type == "cuda" and not compiling()


def transformed() -> bool:
    """True inside torch.func's transforms and forward-mode AD, which take plain PyTorch alone."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def loses_backward() -> bool:
    """True where an autograd.Function has no backward: in transforms, and in torch.export, which keeps its forward alone."""
    return transformed() or torch.compiler.is_exporting()


def _values_are_unknown() -> bool:
    return compiling() or transformed()


def autocast_dtype(z: Tensor) -> torch.dtype | None:
    """The dtype that autocast casts to on z's device; None if autocast is off there."""
    kind = z.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return None


def convolves(z: Tensor) -> bool:
    """True if a product with z is faster as a convolution of width one: oneDNN uses AVX-512 on AMD, MKL does not."""
    return z.device.type == "cpu" and z.dtype == torch.float32 and _mkl_on_amd()


@cache
def _mkl_on_amd() -> bool:
    try:
        amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    fast = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
    return amd and fast and "AVX512" in torch.backends.cpu.get_cpu_capability()


@cache
def core_cache() -> int:
    """Bytes of the second-level cache of one core, as Linux reports it; 1 MiB where it reports none."""
    found = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        size = found.read_text().strip()
        return int(size.removesuffix("K")) * 1024 if size.endswith("K") else int(size)
    except (OSError, ValueError):
        return 1 << 20


def _choice(family: str, impl: Impl, q: Tensor, mask: Mask, plain: bool) -> str:
    check_impl(family, impl, family)
    if isinstance(impl, Eager) or impl == "eager":
        return "eager"
    if impl == "auto" and _values_are_unknown():
        return "eager"
    if transformed():
        raise UnsupportedError(
            f'impl={impl!r} cannot serve torch.func: its kernel has no form for it. Use impl="eager"'
        )
    for entry in IMPLEMENTATIONS:
        fits = q.device.type in entry.devices and q.shape[2] >= entry.shortest
        asked = fits if impl == "auto" else impl == entry.name
        if entry.family != family or not asked:
            continue
        why = entry.serves(q, mask) if plain else "global or learned tokens come before the others"
        if why is not None and impl != "auto":
            raise UnsupportedError(f'impl={impl!r} cannot serve: {why}. Use impl="eager"')
        if why is None:
            return entry.name
    return "eager"
