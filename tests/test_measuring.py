"""The arithmetic of benchmarks/measuring.py."""

import random
import runpy
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_bounds_hold_the_median_as_often_as_they_say(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    median_interval = runpy.run_path(str(BENCHMARKS / "measuring.py"))["median_interval"]
    drawn, held = random.Random(0), 0
    for _ in range(2000):
        low, high = median_interval([drawn.expovariate(1.0) for _ in range(15)], level=0.9)
        held += low <= 0.6931 <= high
    assert 0.9 <= held / 2000 <= 0.98  # order statistics cover at least as much as is wanted
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)  # few values give all of them
    assert median_interval([5.0]) == (5.0, 5.0)
