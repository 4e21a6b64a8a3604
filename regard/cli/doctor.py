"""Facilities of this machine, and what is missing: the first thing to read when a number looks odd."""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import torch

from regard.core.packages import lacking, version
from regard.lab.experiment.provenance import VARIABLES, cores, describe

EXTRAS = ("", "lab", "hf")
"""Parts of the package whose requirements are looked for: the library's own, regard.lab's and regard.hf's."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
Row = dict[str, str]  # what, found and advice
RETAINED = "changes timings by up to 6 times; figures are quoted without it"


def examine() -> list[Row]:
    """Rows of what, found, and advice ("" where nothing is to be done)."""
    return [*_machine(), *_implementations(), *_packages(), *_environment()]


def required(extra: str) -> dict[str, str]:
    """Distribution -> oldest version, of the library or of one of its extras, as the installed package declares them."""
    pattern = r"([\w.-]+)>=([\w.]+)" + (f"; extra == ['\"]{extra}['\"]" if extra else "")
    declared = version("regard") and requires("regard")
    found = (re.fullmatch(pattern, one) for one in declared or ())
    return {match[1]: match[2] for match in found if match}


def missing(rows: list[Row]) -> list[str]:
    """Packages of the library itself that are missing or too old."""
    return [row["what"] for row in rows if row["what"] in required("") and row["advice"]]


def _machine() -> Iterator[Row]:
    from regard import __version__
    from regard.core.memory import free_bytes, spelled_bytes

    available = cores()
    free = free_bytes(torch.device("cpu"))
    threads = torch.get_num_threads()
    advice = "" if version("regard") else "not installed: pip install -e . in its clone"
    few = f"torch uses {threads} of {available} cores" if threads < available else ""
    yield _row("regard", f"{__version__} in {Path(__file__).parents[1]}", advice)
    yield _row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    capability = torch.backends.cpu.get_cpu_capability()
    yield _row("processor", f"{describe('cpu')}, {available} cores, {capability}")
    yield _row("threads", str(threads), few)
    yield _row("memory", f"{spelled_bytes(free)} free" if free else "unknown")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            size = f"{device.total_memory / 2**30:.0f} GiB"
            yield _row(f"cuda:{index}", f"{device.name}, {size}")
    else:
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        yield _row("cuda", f"none (torch is {built})")
    if torch.backends.mps.is_available():
        yield _row("mps", "available", "mechanisms are tested on a CPU only")


def _implementations() -> Iterator[Row]:
    """What `impl="auto"` takes here in the place of plain forms, operation by operation."""
    from regard.functional.rows import replacements

    here = "cuda" if torch.cuda.is_available() else "cpu"
    for (operation, device), entry in getattr(replacements(), "FAST", {}).items():
        lacks = entry.lacks() if device == here else None
        where = f"{entry.name} on {device}: {entry.about}"
        found = where if device == here and not lacks else f"plain ({where})"
        yield _row(f"impl=auto, {operation}", found, f"{entry.name} needs {lacks}" if lacks else "")


def _packages() -> Iterator[Row]:
    for extra in EXTRAS:
        for name, oldest in required(extra).items():
            what = f"{name} ({extra})" if extra else name
            yield _row(what, version(name) or "missing", lacking(name, oldest) or "")


def _environment() -> Iterator[Row]:
    for name in (*THREADS, *VARIABLES):
        value = os.environ.get(name)
        retained = value and name in VARIABLES
        yield _row(name, value or "not set", RETAINED if retained else "")


def _row(what: str, found: str, advice: str = "") -> Row:
    return {"what": what, "found": found, "advice": advice}
