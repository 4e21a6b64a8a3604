"""How a kernel runs: one value, `impl`, that changes speed and memory and never the result.

    "auto"       the first entry of IMPLEMENTATIONS that fits device, dtype, length and mask; else eager
    "plain"      plain PyTorch, which serves every request on every device
    "flex" ..    an entry of IMPLEMENTATIONS, or an error that says why it cannot serve
    Form(...)   eager, with the sizes of the tiles and chunks that it works on

This is the only module that looks at device, compiler and caches. A kernel calls `cut` and reads a `Cut`.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.functional.choice import Form, Impl

TILE, CHUNK = 256, 64
ROOM = 1 << 20  # bytes for each thread, unless the core's cache is smaller
SIZES: dict[str, tuple[int, int]] = {
    "clustered": (32, 32),
    "pattern": (128, 128),
    "synthetic": (64, 64),
    "window": (128, 64),
}
"""Default (tile, chunk) of the kernel families for which other sizes than TILE and CHUNK are faster."""


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


def cut(family: str, impl: Impl, *tensors: Tensor) -> Cut:
    """Sizes for a kernel of this family on these tensors, which share a device."""
    given = impl if isinstance(impl, Form) else Form()
    device, compiling = tensors[0].device.type, _values_are_unknown()
    tiled = device in ("cpu", "meta") and not compiling
    tile, chunk = SIZES.get(family, (TILE, CHUNK))
    threads = torch.get_num_threads() if tiled else 1
    room = given.room or (min(core_cache(), ROOM) if tiled else 1 << 27)
    return Cut(
        "plain",
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


def transformed() -> bool:
    """True inside torch.func's transforms and forward-mode AD, which take plain PyTorch alone."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


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
