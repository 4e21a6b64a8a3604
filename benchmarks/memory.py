"""Peak memory as the system sees it: growth of the process's high-water mark over one call (Linux)."""

import ctypes
from collections.abc import Callable
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_growth(call: Callable[[], object]) -> int | None:
    """Bytes; None where the system does not tell."""
    _give_back()
    try:
        CLEAR.write_text("5")  # the high-water mark starts anew
        before = _read("VmRSS")
    except OSError:
        call()
        return None
    call()
    return _read("VmHWM") - before


def _give_back() -> None:
    """Memory that earlier calls left with the allocator would hide what this one needs."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _read(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise OSError(f"{STATUS} has no {field}")
