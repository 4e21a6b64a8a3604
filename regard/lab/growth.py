"""Numbers at lengths that were not measured, by growth that is fitted to those that were."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log

import numpy as np

Points = tuple[tuple[int, float], ...]  # (length, value)
LARGEST_ERROR = 500.0  # of a logarithm: nothing is known beyond it


@dataclass(frozen=True)
class Estimate:
    """A number at a length. error: of its logarithm, about the relative error; None where one length alone was measured."""

    value: float
    error: float | None
    measured: bool  # at this length itself

    @property
    def low(self) -> float:
        return self.value * exp(-min(self.error or 0.0, LARGEST_ERROR))

    @property
    def high(self) -> float:
        return self.value * exp(min(self.error or 0.0, LARGEST_ERROR))

    @property
    def speed(self) -> tuple[str, str]:
        """A time ratio as a speed, and its bounds: ("4.1×", " (4× to 4.2×)"), or "" where they look alike."""
        low, value, high = (
            f"{1 / n:,.0f}×" if n < 0.1 else f"{1 / n:.2g}×"
            for n in (self.high, self.value, self.low)
        )
        return value, f" ({low} to {high})" if low != high else ""

    def over(self, base: "Estimate") -> "Estimate":
        error = None if self.error is None or base.error is None else max(self.error, base.error)
        return Estimate(self.value / base.value, error, self.measured and base.measured)


@dataclass(frozen=True)
class Growth:
    """value(n) = a + b n + c n^p with a, b, c >= 0 and p declared, fitted to (length, value) by relative error."""

    points: Points  # by length
    power: float
    spread: float = 0.0  # of one measurement, as an error

    def at(self, length: int) -> Estimate:
        """Beyond the longest length the error is that of predicting the longest from the others, for each such step."""
        known = dict(self.points)
        error = None
        if length in known:
            return Estimate(known[length], self.spread, True)
        if len(known) > 1:
            error = max(self.spread, *(self._missed(*point) for point in self.points))
            (before, _), (last, value) = self.points[-2:]
            if length > last:
                steps = max(1.0, log(length / last) / log(last / before))
                shorter = replace(self, points=self.points[:-1])
                error = max(error, steps * shorter._missed(last, value))
        return Estimate(self._fitted(length), error, False)

    def _missed(self, length: int, value: float) -> float:
        return abs(log(self._fitted(length) / value))

    def _fitted(self, length: int) -> float:
        share = length / self.points[-1][0]
        return max(sum(part * share**p for p, part in _parts(self.points, self.power)), 1e-12)


@lru_cache(maxsize=1024)
def _parts(points: Points, power: float) -> list[tuple[float, float]]:
    """(power, part) of the value at the longest length."""
    from scipy.optimize import nnls

    powers = list(dict.fromkeys([power, 0.0, 1.0]))[: len(points)]
    n, v = np.array(points, float).T
    columns = np.stack([(n / n[-1]) ** p for p in powers], 1) / v[:, None]
    return list(zip(powers, nnls(columns, np.ones(len(v)))[0].tolist(), strict=True))
