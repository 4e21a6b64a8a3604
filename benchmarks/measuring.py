"""Shared by the programs of this folder: how they start and end, print rows, and measure time and peak memory."""

import ctypes
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import FlagCreatePairsOff

from regard.cli.printing import print_json, print_table
from regard.core import RegardError
from regard.lab.experiment.provenance import provenance

Entry = TypeVar("Entry")
Flag = FlagCreatePairsOff[bool]
Json = Annotated[Flag, tyro.conf.arg(name="json")]
PATIENCE = 3.0  # seconds for one entry in all its rounds, two calls at least
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def run(main: Callable[..., int]) -> None:
    """End the process with what `main` returns, or with 2 and the text of a RegardError."""
    try:
        sys.exit(tyro.cli(main))
    except RegardError as error:
        print(f"{Path(sys.argv[0]).stem}: {error}", file=sys.stderr)
        sys.exit(2)


def show(rows: list[dict[str, Any]], *, as_json: bool, **more: Any) -> int:
    """Print a table and its origin; as JSON, also whatever `more` there is."""
    origin = provenance()
    if as_json:
        print_json({"rows": rows, **more, "origin": asdict(origin)})
        return 0
    print_table(rows)
    print(f"{origin.device}; allocator {origin.allocator}; {origin.versions}; {origin.commit}")
    return 0


def in_a_process(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a call in a process of its own. Raises RegardError where the process dies, as it does without memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as one:
        try:
            return one.submit(function, *args).result()
        except BrokenProcessPool:
            raise RegardError(
                "a measuring process died: too little memory? Name fewer mechanisms with --only, or a shorter length."
            ) from None


def medians(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each call: one warm-up, then one call in each round, in an order that rotates."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    most = {name: affordable(rounds, _seconds(call)) for name, call in calls.items()}
    for number in range(rounds):
        for name in rotated(list(calls), number):
            if number < most[name]:
                times[name].append(_seconds(calls[name]))
    return {name: 1e3 * statistics.median(taken) for name, taken in times.items()}


def affordable(rounds: int, seconds: float) -> int:
    """Rounds that an entry of this length gets."""
    return min(rounds, max(2, round(PATIENCE / seconds)))


def median_interval(values: list[float], level: float = 0.9) -> tuple[float, float]:
    """The narrowest pair of order statistics that covers the median with this probability, whatever the distribution; all values where they are too few."""
    ordered, count = sorted(values), len(values)
    cut = outside = 0
    while 2 * (outside + math.comb(count, cut)) <= (1 - level) * 2**count:
        outside += math.comb(count, cut)
        cut += 1
    first = max(cut - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def rotated(entries: list[Entry], number: int) -> list[Entry]:
    """The entries in another order each round, so that none always follows the same one."""
    first = number % len(entries)
    return entries[first:] + entries[:first]


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def peak_growth(call: Callable[[], object]) -> int | None:
    """Bytes that one call adds to the process's high-water mark (Linux); None where the system does not report it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # free memory kept by the allocator would hide what this call needs
    try:
        CLEAR.write_text("5")  # resets the high-water mark
        before = _status("VmRSS")
    except OSError:
        call()
        return None
    call()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise OSError(f"{STATUS} has no {field}")
