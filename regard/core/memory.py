"""Memory that is free; what would not fit is refused before it is made."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from regard.core.errors import OptionError

SMALL = 1 << 26
"""Bytes that are taken without a look at the memory."""
MANY = 1 << 31
"""Numbers from which on a module is counted before it is built: the largest size among its options, squared, times the next."""


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can be allocated on this device, as the system reports them; None where it reports none."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = []
    if device.type == "cpu":
        with suppress(OSError, IndexError):
            told = Path("/proc/meminfo").read_text("utf-8").split("MemAvailable:")[1]
            found.append(int(told.split()[0]) * 1024)
        files = (Path("/sys/fs/cgroup/memory").with_suffix(end) for end in (".max", ".current"))
        with suppress(OSError, ValueError):  # a container's limit (cgroup, version 2), if any
            limit, used = (int(file.read_text("utf-8")) for file in files)
            found.append(max(limit - used, 0))
    return min(found, default=None)


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
    """`spelled_bytes(3 * 2**30)` -> "3.00 GiB"."""
    return f"{size / 2**30:,.2f} GiB"


def require_room(who: str, make: Callable[[], Any], options: Any) -> None:
    """Raise OptionError if the module that `make` builds from these options would not fit: it is built on the meta device."""
    *_, second, first = sorted((1, 1, *_sizes(options)))
    device = torch.get_default_device()
    if first * first * second <= MANY or device.type == "meta":
        return
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            made = make()
    except RuntimeError as error:
        if "overflow" not in str(error):
            return  # it reads values, and cannot be counted without them
        raise OptionError(
            f"{who}: a tensor of these sizes needs over {spelled_bytes(2**63)}, and "
            f"{spelled_bytes(free_bytes(device) or 0)} are free on {device}. Choose smaller sizes."
        ) from None
    held = [z for z in chain(made.parameters(), made.buffers()) if z.is_meta]
    largest = max(held, key=lambda z: z.nbytes, default=torch.empty(0))
    what = f"a module with a tensor {list(largest.shape)}"
    require_memory(who, what, sum(z.nbytes for z in held), device, "Choose smaller sizes.")


def _sizes(value: Any) -> Iterator[int]:
    """The whole numbers among options; a seed is none."""
    if type(value) is int:
        yield value
    elif isinstance(value, Mapping):
        for name, option in value.items():
            yield from () if str(name).endswith("seed") else _sizes(option)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for option in value:
            yield from _sizes(option)
    elif is_dataclass(value):
        yield from _sizes(vars(value))
