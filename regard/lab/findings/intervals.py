"""Intervals over seeds, and the verdict on a claim, which follows from them.

    mean +- t(0.975, n - 1) s / sqrt(n)       Student's interval at 95 %, of values or of differences paired by seed

It holds where such means are about normal; with one seed there is none. Each interval stands by itself: of twenty, one
misses on average.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from regard.lab.arena.report.summary import student
from regard.lab.findings.finding import Expected

Verdict = Literal["agrees", "disagrees", "withdrawn", "cannot tell", "not run"]


class Interval(NamedTuple):
    """Bounds of a mean over `seeds` seeds; none from one seed alone."""

    mean: float
    half: float  # infinite for one seed
    seeds: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def interval(values: Sequence[float]) -> Interval | None:
    """None where there are no values."""
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count == 1:
        return Interval(mean, math.inf, 1)
    return Interval(mean, student(count - 1) * statistics.stdev(values) / math.sqrt(count), count)


def difference(
    expected: Expected, of: Mapping[int, float], beside: Mapping[int, float] | None
) -> Interval | None:
    """Interval of what `expected` bounds, from values by seed; None without a seed that both have.

    With `ratio`, the mean of logarithms: `exp` of it is the geometric mean of the factors.
    """
    if beside is None:
        return interval([_scale(expected, value) for value in of.values()])
    seeds = [seed for seed in of if seed in beside]
    return interval([_scale(expected, of[s]) - _scale(expected, beside[s]) for s in seeds])


def _scale(expected: Expected, value: float) -> float:
    return math.log(value) if expected.ratio else value


def bounds(expected: Expected) -> tuple[float, float]:
    """`least` and `most` on the scale of `difference`."""
    if not expected.ratio:
        return expected.least, expected.most
    least = math.log(expected.least) if expected.least > 0 else -math.inf
    return least, math.log(expected.most) if expected.most < math.inf else math.inf


def verdict(found: Interval | None, least: float, most: float) -> Verdict:
    """Agrees where the interval lies wholly between the bounds, disagrees where it lies wholly outside."""
    if found is None:
        return "not run"
    if not math.isfinite(found.half):
        return "cannot tell"
    if least < found.low and found.high < most:
        return "agrees"
    return "disagrees" if found.high < least or found.low > most else "cannot tell"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """A claim of several parts agrees where all do, and disagrees where one does."""
    for word in ("disagrees", "not run", "cannot tell"):
        if word in verdicts:
            return word
    return "agrees" if verdicts else "not run"


def number(value: float) -> str:
    """The number in the form that pages show: three decimals, or three digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if 0.01 <= abs(value) < 10 else f"{value:.3g}"
