"""Interleaved medians of plain calls."""

import statistics
import time
from collections.abc import Callable, Mapping

MOST = 3.0  # seconds for one entry, two calls at least


def medians(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of each call: once to warm up, then once in each round, no entry always after the same one."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    most = {name: min(rounds, max(2, round(MOST / _seconds(call)))) for name, call in calls.items()}
    names = list(calls)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if number < most[name]:
                times[name].append(_seconds(calls[name]))
    return {name: 1e3 * statistics.median(of) for name, of in times.items()}


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
