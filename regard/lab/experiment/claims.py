"""The verdict on a claim, which follows from the rows of a question as they are: from intervals over seeds and test items.


    d[s, i]   difference of two entries' scores, or one's score, from seed s at test item i
    mean +- t(nu) sqrt(a + b),   a = Var_s(mean_i d) / S,   b = Var_i(mean_s d) / N
    nu = (a + b)^2 / (a^2 / (S - 1) + b^2 / (N - 1))                                        (Satterthwaite)

at 99 %, since a hundred verdicts are given. It is a little wide, as the noise within a seed and an item is counted in both parts
(Owen 2007, "The pigeonhole bootstrap", has the like for resampling). Where test items have no scores, b = 0 and the interval says so.
"""

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from regard.lab.experiment.row import Facts, Row

if TYPE_CHECKING:
    from regard.lab.experiment.results import Cell, Results

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
        """The claim as pages show it; the ends are null where it is infinitely wide."""
        ends = {name: short(getattr(self, name)) for name in ("mean", "low", "high")}
        return ends | {"seeds": self.seeds, "items": self.items}


def interval(
    by_seed: Mapping[int, Scores], beside: Mapping[int, Scores] | None = None
) -> Interval | None:
    """Interval of the mean, or of the difference paired by seed and item; None without a seed that both have."""
    seeds = sorted(seed for seed in by_seed if beside is None or seed in beside)
    if not seeds:
        return None
    found = [
        by_seed[seed] if beside is None else _less(by_seed[seed], beside[seed]) for seed in seeds
    ]
    values = np.array([one.value for one in found])
    sizes = {len(one.items) for one in found}
    S = len(seeds)
    N = sizes.pop() if len(sizes) == 1 else 0
    mean = float(values.mean())
    if S == 1:
        return Interval(mean, inf, 1, N)
    a = values.var(ddof=1) / S
    b = np.mean([one.items for one in found], 0).var(ddof=1) / N if N > 1 else 0.0
    if a + b == 0:
        return Interval(mean, 0.0, S, N)
    freedom = (a + b) ** 2 / (a**2 / (S - 1) + (b**2 / (N - 1) if b else 0.0))
    half = float(stdtrit(freedom, 0.5 + LEVEL / 2) * sqrt(a + b))
    return Interval(mean, half, S, N, float(b / (a + b)))


def _less(a: Scores, b: Scores) -> Scores:
    """a - b; without items where they are not of the same items."""
    alike = len(a.items) == len(b.items)
    return Scores(a.value - b.value, np.subtract(a.items, b.items).tolist() if alike else ())


def verdict(found: Interval | None, least: float, most: float) -> Verdict:
    """Agrees where the interval lies wholly between the bounds, disagrees where it lies wholly outside."""
    if not found:
        return "not run"
    if least <= found.low and found.high <= most:
        return "agrees"
    return "disagrees" if found.high < least or found.low > most else "cannot tell"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """A claim of several bounds agrees where all do, and disagrees where one does."""
    words: tuple[Verdict, ...] = ("disagrees", "not run", "cannot tell", "agrees")
    return next((word for word in words if word in verdicts), "not run")


def seeds_to_tell(found: Interval, least: float, most: float, smallest: float) -> int | None:
    """Seeds after which the interval would be as narrow as the distance to the nearer bound, or as the smallest effect.

    None where the test items alone make it wider: no number of seeds is enough.
    """
    bounds = [abs(found.mean - one) for one in (least, most) if isfinite(one)]
    room = max(smallest / 2, min(bounds, default=0.0)) ** 2 - found.half**2 * found.of_items
    if room <= 0:
        return None
    return max(found.seeds + 1, ceil(found.seeds * found.half**2 * (1 - found.of_items) / room))


def short(value: float | None) -> float | None:
    """Seven digits, as data and pages have it, more than `said` has; None for what is not finite."""
    return None if value is None or not isfinite(value) else float(f"{value:.7g}")


def said(value: float | None) -> str:
    """The number as people read it: three decimals, or four digits."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}"


def judge(results: "Results", claim: Facts) -> Facts:
    """The claim as pages show it: its verdict and bounds, when it was first written down, and what would tell where nothing is told.

    A bound has the interval that it bounds, its verdict, and the reason why one was withheld. `seeds`: so many would tell.
    """
    stated = _stated(results, claim)
    judged = [_bound(results, one, claim["smallest"], stated) for one in claim["expected"]]
    bounds = [bound for bound, _ in judged]
    open_ = [
        (found, bound)
        for bound, found in judged
        if found and bound["verdict"] == "cannot tell" and bound["reason"] is None
    ]
    needs, seeds = _needs(results, open_, claim["smallest"])
    return {name: claim[name] for name in ("text", "source", "smallest", "withdrawn")} | {
        "verdict": "withdrawn" if claim["withdrawn"] else together([one["verdict"] for one in bounds]),
        "needs": needs,
        "seeds": seeds,
        "stated": stated.provenance.started,
        "stated commit": stated.provenance.commit,
        "bounds": bounds,
    }  # fmt: skip


def _needs(
    results: "Results", open_: Sequence[tuple[Interval, Facts]], smallest: float
) -> tuple[str | None, int | None]:
    """What would tell these bounds, in words, and the seeds of it."""
    if not open_ or not all(isfinite(found.half) for found, _ in open_):
        return None, None
    needed = [seeds_to_tell(found, *_least_most(bound), smallest) for found, bound in open_]
    if None in needed:
        items = max(found.items for found, _ in open_)
        return f"more than {items:,} test items, whatever the seeds", None
    seeds = max(filter(None, needed))
    seconds = sum(fmean(one.seconds for one in c.rows) for c in results.cells.values() if c.rows)
    more = seeds - min(found.seeds for found, _ in open_)
    return f"about {seeds} seeds, {ceil(more * seconds / 60)} more minutes of one core", seeds


def _stated(results: "Results", claim: Facts) -> Row:
    """The first record that holds this claim, with the columns that it is of; a withdrawal changes neither."""
    names = {results.column(one) for one in claim["expected"]}

    def facts(config: Facts) -> list:
        return [
            {key: value for key, value in column.items() if key != "shell"}
            for column in config["columns"]
            if column["name"] in names
        ]

    for row in results.history:
        known = [{**one, "withdrawn": ""} for one in row.config["claims"]]
        if {**claim, "withdrawn": ""} in known and facts(row.config) == facts(results.config):
            return row
    return results.asked


def _bound(
    results: "Results", expected: Facts, smallest: float, stated: Row
) -> tuple[Facts, Interval | None]:
    column = results.column(expected)
    labels = filter(None, (expected["of"], expected["beside"]))
    cells = [results.cells.get((label, column)) for label in labels]
    found = interval(*(cell.by_seed(expected["measure"]) if cell else {} for cell in cells))
    word = verdict(found, *_least_most(expected))
    there = [cell for cell in cells if cell]
    known = {name for cell in there for row in cell.rows for name in (row.metric, *row.values)}
    reason = None
    if known and expected["measure"] and expected["measure"] not in known:
        reason = (
            f"no result has a measure {expected['measure']!r}: they have {', '.join(sorted(known))}"
        )
    if word in ("agrees", "disagrees"):
        reason = _early(there, stated) or _unfit(results, there)
    if reason is None and word in ("agrees", "cannot tell"):
        reason = _too_small(found, expected, smallest)
    return {
        **expected,
        "column": column,
        "interval": found and found.plain,
        "verdict": "cannot tell" if reason else word,
        "reason": reason,
    }, found


def _early(cells: Sequence["Cell"], stated: Row) -> str | None:
    """Rows that were begun before the claim was kept cannot judge it."""
    rows = [row for cell in cells for row in cell.rows]
    early = sum(row.provenance.started < stated.provenance.started for row in rows)
    if not early:
        return None
    return f"{early} of {len(rows)} results were begun before the claim was written down"


def _unfit(results: "Results", cells: Sequence["Cell"]) -> str | None:
    for cell in cells:
        if not results.passes(cell):
            return f"`{cell.entry}` does not pass the three lines of {cell.column}"
        if cell.at_edge:
            return f"the best rate of `{cell.entry}` is at the edge of those tried"
    return None


def _least_most(expected: Facts) -> tuple[float, float]:
    """JSON has null for what is not bounded."""
    least = -inf if expected["least"] is None else expected["least"]
    return least, inf if expected["most"] is None else expected["most"]


def _too_small(found: Interval | None, expected: Facts, smallest: float) -> str | None:
    """Why a difference is not worth telling: it is surely below the smallest effect, and the one bound asks only for its sign."""
    least, most = _least_most(expected)
    of_sign = min(abs(least), abs(most)) < smallest and not isfinite(most - least)
    if found is None or expected["beside"] is None or not of_sign:
        return None
    if max(abs(found.low), abs(found.high)) >= smallest:
        return None
    return f"the difference is smaller than {said(smallest)}, the smallest worth telling"
