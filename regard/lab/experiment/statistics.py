"""Intervals over seeds and test items, and the verdict on a bound, which follows from them.

    d[s, i]   difference of two entries' scores, or one's score, from seed s at test item i
    mean +- t(nu) sqrt(a + b),   a = Var_s(mean_i d) / S,   b = Var_i(mean_s d) / N
    nu = (a + b)^2 / (a^2 / (S - 1) + b^2 / (N - 1))                                        (Satterthwaite)

at 99 %, since a hundred verdicts are given. It is a little wide, as the noise within a seed and an item is counted in both parts
(Owen 2007, "The pigeonhole bootstrap", has the like for resampling). Where test items have no scores, b = 0 and the interval says so.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.99
Verdict = Literal["agrees", "disagrees", "withdrawn", "cannot tell", "not run"]


class Scores(NamedTuple):
    """The result of one seed."""

    value: float
    items: Sequence[float] = ()


class Interval(NamedTuple):
    """Bounds of a mean over `seeds` seeds and `items` test items (0: of seeds alone); infinitely wide from one seed."""

    mean: float
    half: float
    seeds: int
    items: int = 0
    of_items: float = 0.0  # share of the variance that more seeds leave as it is

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    @property
    def plain(self) -> dict[str, float | None]:
        """As pages show it; the ends are null where it is infinitely wide."""
        ends = {name: short(getattr(self, name)) for name in ("mean", "low", "high")}
        return ends | {"seeds": self.seeds, "items": self.items}


def interval(
    by_seed: Mapping[int, Scores], beside: Mapping[int, Scores] | None = None
) -> Interval | None:
    """Interval of the mean, or of the difference paired by seed and item; None without a seed that both have."""
    seeds = sorted(seed for seed in by_seed if beside is None or seed in beside)
    if not seeds:
        return None
    pairs = [(by_seed[seed], None if beside is None else beside[seed]) for seed in seeds]
    values = np.array([a.value - (0.0 if b is None else b.value) for a, b in pairs])
    items = _items(pairs)
    S, N = len(seeds), 0 if items is None else items.shape[1]
    if S == 1:
        return Interval(float(values.mean()), math.inf, 1, N)
    a = values.var(ddof=1) / S
    b = 0.0 if items is None or N < 2 else items.mean(0).var(ddof=1) / N
    if a + b == 0:
        return Interval(float(values.mean()), 0.0, S, N)
    freedom = (a + b) ** 2 / (a**2 / (S - 1) + (b**2 / (N - 1) if b else 0.0))
    half = float(stats.t.ppf(0.5 + LEVEL / 2, freedom) * math.sqrt(a + b))
    return Interval(float(values.mean()), half, S, N, float(b / (a + b)))


def _items(pairs: Sequence[tuple[Scores, Scores | None]]) -> np.ndarray | None:
    """[S N], or None where a seed has no scores of items, or of other items."""
    lengths = {len(one.items) for pair in pairs for one in pair if one is not None}
    if len(lengths) != 1 or not lengths.pop():
        return None
    return np.array([np.subtract(a.items, 0.0 if b is None else b.items) for a, b in pairs])


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
    """A claim of several bounds agrees where all do, and disagrees where one does."""
    for word in ("disagrees", "not run", "cannot tell"):
        if word in verdicts:
            return word
    return "agrees" if verdicts else "not run"


def seeds_to_tell(found: Interval, least: float, most: float, smallest: float) -> int | None:
    """Seeds after which the interval would be as narrow as the distance to the nearer bound, or as the smallest effect.

    None where the test items alone make it wider: no number of seeds is enough.
    """
    bounds = [abs(found.mean - one) for one in (least, most) if math.isfinite(one)]
    room = max(smallest / 2, min(bounds, default=0.0)) ** 2 - found.half**2 * found.of_items
    if room <= 0:
        return None
    return max(
        found.seeds + 1, math.ceil(found.seeds * found.half**2 * (1 - found.of_items) / room)
    )


def short(value: float | None) -> float | None:
    """Five digits, as data and pages have it; None for what is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def said(value: float | None) -> str:
    """The number as people read it: three decimals, or four digits."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}"
