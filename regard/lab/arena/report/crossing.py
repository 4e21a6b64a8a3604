"""The length, in tokens, from which a mechanism's ratio to softmax stays below 1."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.05  # a smaller difference in time is called none


@dataclass(frozen=True)
class Crossing:
    """From which length on a ratio stays below 1. `at` None: not up to `last`; at == first: already there.

    level: at `last` the two differ by less than 5 %, so which is ahead there is not settled. between: the same length by the
    faster and by the slower quartile, None in the place of one beyond `last`.
    """

    at: float | None
    first: int
    last: int
    level: bool = False
    between: tuple[float | None, float | None] | None = None

    def __str__(self) -> str:
        if self.level:
            return f"about level at {self.last:,}"
        if self.at is None:
            return f"not up to {self.last:,}"
        if self.at <= self.first:
            return f"at every length from {self.first:,}"
        return f"about {_two(self.at)}{self._bounds()}"

    def _bounds(self) -> str:
        if self.between is None:
            return ""
        low, high = (f"over {self.last:,}" if at is None else _two(at) for at in self.between)
        return "" if low == high else f" ({low} to {high})"


def crossing(
    points: Sequence[tuple[int, float]],
    quartiles: tuple[Sequence[tuple[int, float]], Sequence[tuple[int, float]]] | None = None,
) -> Crossing | None:
    """The length from which (length, ratio) stays below 1, interpolated on log-log; `quartiles` of the ratio give its bounds.

    >>> str(crossing([(256, 2.0), (1024, 0.5)]))
    'about 510'
    """
    points = sorted((n, r) for n, r in points if r > 0)
    if not points:
        return None
    first, last = points[0][0], points[-1][0]
    level = abs(points[-1][1] - 1) < LEVEL
    between = (_below_one(quartiles[0]), _below_one(quartiles[1])) if quartiles else None
    return Crossing(_below_one(points), first, last, level, between)


def _below_one(points: Sequence[tuple[int, float]]) -> float | None:
    points = sorted((n, r) for n, r in points if r > 0)
    above = [i for i, (_, ratio) in enumerate(points) if ratio >= 1]
    if not points or (above and above[-1] == len(points) - 1):
        return None
    if not above:
        return float(points[0][0])
    (n0, r0), (n1, r1) = points[above[-1]], points[above[-1] + 1]
    share = math.log(r0) / (math.log(r0) - math.log(r1))
    return math.exp(math.log(n0) + share * (math.log(n1) - math.log(n0)))


def _two(value: float) -> str:
    """To two digits."""
    return f"{float(f'{value:.2g}'):,.0f}"
