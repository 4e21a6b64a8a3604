"""Memory that is free, and tensors that are refused before they are made because they would not fit."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.core.errors import OptionError

SMALL = 1 << 26
"""Bytes of a tensor that is made without a look at the memory."""


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can be allocated on this device, as the system reports them; None where it reports none."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    found = [_available(), _left_to_the_group()]
    return min((size for size in found if size is not None), default=None)


def require_memory(who: str, what: str, size: int, device: torch.device, instead: str) -> None:
    """Raise OptionError if `what` needs more bytes than are free on the device."""
    if size <= SMALL:
        return
    free = free_bytes(device)
    if free is not None and size > free:
        raise OptionError(
            f"{who}: {what} needs {spelled_bytes(size)}, and {spelled_bytes(free)} are free on {device}. {instead}"
        )


def spelled_bytes(size: int) -> str:
    """`spelled_bytes(3 * 2**30)` -> "3.0 GiB"."""
    power = min(max(size.bit_length() - 1, 0) // 10, 8)
    unit = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")[power]
    return f"{size / 1024**power:.{1 if power else 0}f} {unit}" if size < 2**100 else "over 1e6 YiB"


@contextmanager
def within_memory(who: str) -> Iterator[None]:
    """Tensors made inside are refused where they would not fit; inside another such block it does nothing."""
    if torch.compiler.is_compiling() or _active.get():
        yield
        return
    token = _active.set(True)
    try:
        with _Refusing(who):
            yield
    finally:
        _active.reset(token)


_active: ContextVar[bool] = ContextVar("within_memory", default=False)


class _Refusing(TorchFunctionMode):
    def __init__(self, who: str):
        super().__init__()
        self.who = who

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        shape = _shape(function, args, kwargs)
        if shape is not None and math.prod(shape) > SMALL // 8:
            like = args[0] if isinstance(args[0], Tensor) else torch.empty(0)
            dtype = kwargs.get("dtype") or like.dtype
            device = torch.device(kwargs.get("device") or like.device)
            require_memory(
                self.who,
                f"a tensor {list(shape)}",
                math.prod(shape) * dtype.itemsize,
                device,
                "Choose smaller sizes.",
            )
        return function(*args, **kwargs)


_SIZED = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn}
_NEW = {Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones}


def _shape(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[int] | None:
    """Shape of the tensor that a factory is going to make; None for other functions."""
    if function in _SIZED or function in _NEW:
        sizes = args[1:] if function in _NEW else args
        given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes
        given = given or kwargs.get("size", ())
    elif function in (torch.full, Tensor.new_full):
        given = args[0] if function is torch.full else args[1]
    elif function is torch.arange:
        numbers = [n for n in args if isinstance(n, int)]
        given = (max(numbers) - (min(numbers) if len(numbers) > 1 else 0),) if numbers else ()
    elif function is torch.eye:
        given = tuple(args[:2]) if len(args) > 1 else (args[0], args[0])
    else:
        return None
    return given if all(type(n) is int for n in given) else None


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _left_to_the_group() -> int | None:
    """Bytes that a container may still use, if it has a limit (cgroup, version 2)."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        return None if limit == "max" else max(int(limit) - used, 0)
    except (OSError, ValueError):
        return None
