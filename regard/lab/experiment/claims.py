"""The verdict on a claim, which follows from the rows of a question as they are."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.lab.experiment.row import Row
from regard.lab.experiment.statistics import (
    Interval,
    Scores,
    interval,
    said,
    seeds_to_tell,
    together,
    verdict,
)

if TYPE_CHECKING:
    from regard.lab.experiment.results import Cell, Results

Facts = Mapping[str, Any]


def judge(results: "Results", claim: Facts) -> dict[str, Any]:
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
    if not open_ or not all(math.isfinite(found.half) for found, _ in open_):
        return None, None
    needed = [seeds_to_tell(found, *_least_most(bound), smallest) for found, bound in open_]
    if None in needed:
        items = max(found.items for found, _ in open_)
        return f"more than {items:,} test items, whatever the seeds", None
    seeds = max(filter(None, needed))
    seconds = sum(row.seconds for cell in results.cells.values() for row in cell.rows)
    seconds /= max(1, len(results.config["seeds"]))
    more = seeds - min(found.seeds for found, _ in open_)
    return f"about {seeds} seeds, {more * seconds / 3600:.1f} more hours of one core", seeds


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


def _bound(
    results: "Results", expected: Facts, smallest: float, stated: Row
) -> tuple[dict[str, Any], Interval | None]:
    found = _difference(results, expected)
    word = verdict(found, *_least_most(expected))
    reason = None
    if word in ("agrees", "disagrees"):
        reason = _early(results, expected, stated) or _unfit(results, expected)
        reason = reason or next(filter(None, map(partial(_unmet, results), expected["when"])), None)
    if reason is None and word in ("agrees", "cannot tell"):
        reason = _too_small(found, expected, smallest)
    return {
        **expected,
        "column": results.column(expected),
        "interval": found and found.plain,
        "verdict": "cannot tell" if reason else word,
        "reason": reason,
    }, found


def _values(results: "Results", label: str, expected: Facts) -> dict[int, Scores]:
    cell = results.cells.get((label, results.column(expected)))
    return {} if cell is None else cell.by_seed(expected["measure"])


def _difference(results: "Results", expected: Facts) -> Interval | None:
    beside = None if expected["beside"] is None else _values(results, expected["beside"], expected)
    return interval(_values(results, expected["of"], expected), beside)


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
    told = "not known"
    if found is not None:
        told = f"{said(found.mean)} ({said(found.low)} to {said(found.high)})"
    beside = f" less `{condition['beside']}`" if condition["beside"] else ""
    least, most = _least_most(condition)
    needs = f"above {said(least)}" if math.isinf(most) else f"below {said(most)}"
    return f"the bound holds where `{condition['of']}`{beside} is {needs}, and here it is {told}"


def _least_most(expected: Facts) -> tuple[float, float]:
    """JSON has null for what is not bounded."""
    least = -math.inf if expected["least"] is None else expected["least"]
    return least, math.inf if expected["most"] is None else expected["most"]


def _too_small(found: Interval | None, expected: Facts, smallest: float) -> str | None:
    """Why a difference is not worth telling: it is surely below the smallest effect, and the bound asks only for its sign."""
    least, most = _least_most(expected)
    of_sign = all(abs(one) < smallest for one in (least, most) if math.isfinite(one))
    if found is None or expected["beside"] is None or not of_sign:
        return None
    if max(abs(found.low), abs(found.high)) >= smallest:
        return None
    return f"the difference is smaller than {said(smallest)}, the smallest worth telling"
