"""The verdict on a claim, which follows from the rows of a question as they are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.lab.experiment.row import Row
from regard.lab.experiment.statistics import (
    Interval,
    Scores,
    Verdict,
    interval,
    number,
    seeds_to_tell,
    together,
    verdict,
)

if TYPE_CHECKING:
    from regard.lab.experiment.results import Cell, Results

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Bound:
    """One bound of a claim, the interval that it bounds, and what follows; `reason` says why a verdict was withheld."""

    expected: Facts
    interval: Interval | None
    verdict: Verdict
    reason: str | None = None


@dataclass(frozen=True)
class Judged:
    """A claim, and what follows for it. stated: the question as it was asked when the claim, with its columns, was first in it."""

    claim: Facts
    stated: Row
    bounds: tuple[Bound, ...]
    needs: str | None = None  # what would tell
    seeds: int | None = None  # that would tell

    @property
    def verdict(self) -> Verdict:
        return (
            "withdrawn"
            if self.claim["withdrawn"]
            else together([one.verdict for one in self.bounds])
        )


def judge(results: "Results", claim: Facts) -> Judged:
    stated = _stated(results, claim)
    bounds = tuple(_bound(results, one, claim["smallest"], stated) for one in claim["expected"])
    open_ = [one for one in bounds if one.verdict == "cannot tell" and one.reason is None]
    untold = [(one.interval, one.expected) for one in open_ if one.interval is not None]
    if not untold or not all(math.isfinite(found.half) for found, _ in untold):
        return Judged(claim, stated, bounds)
    needed = [
        seeds_to_tell(found, *_least_most(expected), claim["smallest"])
        for found, expected in untold
    ]
    seeds = None if None in needed else max(filter(None, needed))
    if seeds is None:
        items = max(found.items for found, _ in untold)
        needs = f"more than {items:,} test items, whatever the seeds"
    else:
        seconds = sum(row.seconds for cell in results.cells.values() for row in cell.rows)
        seconds /= max(1, len(results.config["seeds"]))
        more = seeds - min(found.seeds for found, _ in untold)
        needs = f"about {seeds} seeds, {more * seconds / 3600:.1f} more hours of one core"
    return Judged(claim, stated, bounds, needs, seeds)


def _stated(results: "Results", claim: Facts) -> Row:
    """The first record that holds this claim, with the columns that it is of; a withdrawal changes neither."""
    names = {results.column(one) for one in claim["expected"]}

    def facts(config: Facts) -> list[Any]:
        return [
            {key: value for key, value in column.items() if key != "shell"}
            for column in config["columns"]
            if column["name"] in names
        ]

    def alike(row: Row) -> bool:
        return facts(row.config) == facts(results.config) and any(
            one | {"withdrawn": ""} == {**claim, "withdrawn": ""} for one in row.config["claims"]
        )

    return next(filter(alike, results.history), results.asked)


def _bound(results: "Results", expected: Facts, smallest: float, stated: Row) -> Bound:
    found = _difference(results, expected)
    word = verdict(found, *_least_most(expected))
    reason = None
    if word in ("agrees", "disagrees"):
        reason = _early(results, expected, stated) or _unfit(results, expected)
        reason = reason or next(filter(None, map(partial(_unmet, results), expected["when"])), None)
    if reason is None and word in ("agrees", "cannot tell"):
        reason = _too_small(found, expected, smallest)
    return Bound(expected, found, "cannot tell" if reason else word, reason)


def _values(results: "Results", label: str, expected: Facts) -> dict[int, Scores]:
    column = results.column(expected)
    timed = results.timed.get((label, column))
    if timed is not None:
        value = getattr(timed, expected["measure"] or "ms", None)
        return {0: Scores(value)} if isinstance(value, int | float) else {}
    cell = results.cells.get((label, column))
    return {} if cell is None else cell.by_seed(expected["measure"])


def _difference(results: "Results", expected: Facts) -> Interval | None:
    beside = None if expected["beside"] is None else _values(results, expected["beside"], expected)
    return interval(_values(results, expected["of"], expected), beside, ratio=expected["ratio"])


def _cells_of(results: "Results", expected: Facts) -> list["Cell"]:
    labels = filter(None, (expected["of"], expected["beside"]))
    found = (results.cells.get((label, results.column(expected))) for label in labels)
    return [cell for cell in found if cell is not None]


def _early(results: "Results", expected: Facts, stated: Row) -> str | None:
    """Rows that were begun before the claim was kept cannot judge it."""
    cells = [cell for one in (expected, *expected["when"]) for cell in _cells_of(results, one)]
    rows = [row for cell in cells for row in cell.rows]
    early = sum(row.provenance.started < stated.provenance.started for row in rows)
    if not early:
        return None
    return f"{early} of {len(rows)} results were begun before the claim was written down"


def _unfit(results: "Results", expected: Facts) -> str | None:
    for cell in _cells_of(results, expected):
        if not results.passes(cell):
            return f"`{cell.entry}` does not pass the three lines of {cell.column}"
        if cell.at_edge:
            return f"the best rate of `{cell.entry}` is at the edge of those tried"
    return None


def _unmet(results: "Results", condition: Facts) -> str | None:
    found = _difference(results, condition)
    if found is not None and verdict(found, *_least_most(condition)) == "agrees":
        return None
    scale = factor if condition["ratio"] else float
    told = "not known"
    if found is not None:
        low, high = number(scale(found.low)), number(scale(found.high))
        told = f"{number(scale(found.mean))} ({low} to {high})"
    between = "by" if condition["ratio"] else "less"
    beside = f" {between} `{condition['beside']}`" if condition["beside"] else ""
    least, most = map(scale, _least_most(condition))
    needs = f"above {number(least)}" if math.isinf(most) else f"below {number(most)}"
    return f"the bound holds where `{condition['of']}`{beside} is {needs}, and here it is {told}"


def _least_most(expected: Facts) -> tuple[float, float]:
    """Bounds on the scale of the interval; JSON has null for what is not bounded."""
    least = -math.inf if expected["least"] is None else expected["least"]
    most = math.inf if expected["most"] is None else expected["most"]
    if not expected["ratio"]:
        return least, most
    return (math.log(least) if least > 0 else -math.inf), (
        math.log(most) if most < math.inf else math.inf
    )


def factor(logarithm: float) -> float:
    """The factor whose logarithm is given; infinite where it is too large for a number."""
    return math.exp(logarithm) if logarithm < 700 else math.inf


def _too_small(found: Interval | None, expected: Facts, smallest: float) -> str | None:
    """Why a difference is not worth telling: it is surely below the smallest effect, and the bound asks only for its sign."""
    least, most = _least_most(expected)
    of_sign = all(abs(one) < smallest for one in (least, most) if math.isfinite(one))
    if found is None or expected["beside"] is None or not of_sign:
        return None
    if max(abs(found.low), abs(found.high)) >= smallest:
        return None
    return f"the difference is smaller than {number(smallest)}, the smallest worth telling"
