"""One reading of a question's rows, shared by the page, the terminal and the documentation.

Nothing here is measured again and nothing is filled in. Rows of cells that the question no longer has, because a source, an option, the
budget or the engine changed, are old: they are counted by entry and enter nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import isclose
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple

from regard.lab.experiment.claims import Scores, judge
from regard.lab.experiment.row import Facts, Row
from regard.lab.experiment.stored import SETTING

RATIO = 3.0  # of neighbouring rates, where a grid has only one
WIDEST = 6  # rates by which a grid may grow
MEASURED = "recommend"
"""The question of rough timings that `regard recommend --measure` takes: never the newest."""


def rate_means(rows: Iterable[Row]) -> dict[float, float]:
    """Learning rate -> mean validation score, over the seeds that tried most rates."""
    found = {
        (row.rate, row.seed): row.valid_value
        for row in rows
        if row.rate is not None and row.valid_value is not None
    }
    tried = Counter(seed for _, seed in found)
    values = dict[float, list[float]]()
    for (rate, seed), value in found.items():
        if tried[seed] == max(tried.values()):
            values.setdefault(rate, []).append(value)
    return {rate: fmean(of) for rate, of in values.items()}


def best_rate(rows: Iterable[Row], better: str) -> float | None:
    means = rate_means(rows)
    return best_of(better)(sorted(means), key=means.__getitem__, default=None)


def wider(grid: Sequence[float], best: float) -> float | None:
    """The next rate beyond the end of the grid at which the best one is, of six digits; None where that is inside."""
    ratio = grid[1] / grid[0] if len(grid) > 1 else RATIO
    if isclose(best, grid[0]):
        return float(f"{grid[0] / ratio:.6g}")
    return float(f"{grid[-1] * ratio:.6g}") if isclose(best, grid[-1]) else None


def grid_of(rows: Sequence[Row], asked: Facts, better: str) -> list[float]:
    """The rates of a question, and those by which these rows widened them, the lowest first. asked: its record."""
    grid = sorted(asked["rates"])
    for _ in range(WIDEST if asked["kind"] == "comparison" and grid else 0):
        best = best_rate((row for row in rows if among(row.rate, grid)), better)
        more = wider(grid, best) if best else None
        if more is None or not any(among(row.rate, [more]) for row in rows):
            break
        grid = sorted([*grid, more])
    return grid


def counted(rows: Iterable[Row], asked: Facts, better: str) -> list[Row]:
    """The rows of a cell that a question counts, at its rates and of its seeds, and of those that it added for its claims.

    asked: the question's record. What another question has tried beside them enters nothing.
    """
    last = max(asked["seeds"], default=-1)
    rows = [
        row
        for row in rows
        if row.seed in asked["seeds"]
        or (row.seed > last and row.question == asked["name"] and asked["claims"])
    ]
    grid = grid_of(rows, asked, better)
    if not grid:
        return [row for row in rows if row.rate is None]
    return [replace(row, rate=rate) for row in rows if (rate := among(row.rate, grid))]


def among(rate: float | None, grid: Iterable[float]) -> float | None:
    """The rate of the grid that this one is but for its last digits; None where there is none."""
    return next((one for one in grid if rate is not None and isclose(rate, one)), None)


def best_of(better: str) -> Any:
    return max if better == "higher" else min


class Cell(NamedTuple):
    """An entry in a column, at its best rate. `failed`: runs that were not finite or came out below no mixing; they decide no mean."""

    entry: str
    column: str
    better: str
    causal: bool | None
    rows: Sequence[Row]  # one a seed, at the best rate, that did not fail
    failed: Sequence[Row]
    tried: Sequence[Row]  # all, at all rates
    rate: float | None
    reason: str | None  # why there is nothing
    allowed: float | None  # share of the needed pairs that the structure allows

    @property
    def values(self) -> list[float]:
        return [row.value for row in self.rows if row.value is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    def passes(self, value: float) -> bool:
        """True if every value of the cell is better than this one."""
        return min(self.values) > value if self.better == "higher" else max(self.values) < value

    @property
    def rates(self) -> list[float]:
        """Rates that were tried, the lowest first."""
        return sorted({row.rate for row in self.tried if row.rate is not None})

    @property
    def at_edge(self) -> bool:
        """True if the best rate is the lowest or the highest that was tried."""
        return self.rate in {*self.rates[:1], *self.rates[-1:]}

    def by_seed(self, measure: str | None = None) -> dict[int, Scores]:
        """The measure, or the task's metric with the scores of test items."""
        found = {}
        for row in self.rows:
            if measure in row.values:
                found[row.seed] = Scores(row.values[measure])
            elif measure in (None, row.metric) and row.value is not None:
                found[row.seed] = Scores(row.value, row.scores)
        return found


class Results:
    """The rows of a question as it stood when it was asked last.

    asked: its record. labels, columns, lines: in the question's order. trained, accuracies: names of the columns that are trained, and of
    those of them whose metric is accuracy. old: entry -> how many of its rows are left out.
    """

    def __init__(self, asked: Row, rows: Iterable[Row]):
        self.asked = asked
        self.config = config = asked.config
        of_laws = {entry["label"]: entry.get("laws") for entry in config["entries"]}
        self.labels = list(of_laws)
        self.columns = {column["name"]: column for column in config["columns"]}
        self.trained = [name for name, one in self.columns.items() if one["kind"] == "trained"]
        self.accuracies = [n for n in self.trained if self.columns[n]["metric"] == "accuracy"]
        self.lines = config["lines"]
        self.old = Counter[str]()
        self.history = list[Row]()
        self.laws = dict[str, Row]()
        places = {line[2]: self.columns[line[1]] for line in config["cells"]}
        forms = {
            cell: (column, column in self.trained and causal)
            for _, column, cell, causal, *_ in config["cells"]
        }
        by_cell = dict[str, list[Row]]()
        newest = {}  # what rows of a column, trained in either form, share
        for row in sorted(rows, key=_started):
            mine = row.question == asked.question
            if row.kind == "laws":
                if row.cell == of_laws.get(row.entry):
                    self.laws[row.entry] = row
            elif row.kind == "asked":
                self.history += [row] * mine
            elif _is_of(row, places.get(row.cell)):
                by_cell.setdefault(row.cell, []).append(row)
                newest[forms[row.cell]] = _where(row)
            elif mine:
                self.old[row.entry] += 1
        self.cells = dict[tuple[str, str], Cell]()
        self.timed = dict[tuple[str, str], Row]()
        self._read(by_cell, lambda row: _where(row) == newest[forms[row.cell]])

    def _read(self, by_cell: Mapping[str, list[Row]], is_of_now: Callable[[Row], bool]) -> None:
        lines_first = sorted(self.config["cells"], key=lambda one: _line(one[0]) not in self.lines)
        for label, column, cell, *more in lines_first:
            every = by_cell.get(cell, [])
            found = [row for row in every if is_of_now(row)]
            if left := len(every) - len(found):
                self.old[label] += left
            if column in self.trained:
                self.cells[label, column] = self._cell(label, column, found, *more)
            elif found:
                self.timed[label, column] = found[-1]

    def _cell(
        self,
        label: str,
        column: str,
        rows: list[Row],
        causal: bool,
        reason: str | None,
        allowed: float | None,
    ) -> Cell:
        better = self.columns[column]["better"]
        mine = sum(row.question == self.asked.question for row in rows)
        rows = counted(rows, self.config, better)
        if left := mine - sum(row.question == self.asked.question for row in rows):
            self.old[label] += left
        rate = best_rate(rows, better)
        at = list({row.seed: row for row in rows if rate in (None, row.rate)}.values())
        line = None if _line(label) in self.lines else self._line_of(0, column, causal)
        failed = [row for row in at if row.value is None or (line and line.passes(row.value))]
        if 2 * len(failed) >= len(at):  # not runs but the entry is below: it is shown, and grey
            failed = [row for row in failed if row.value is None]
        kept = [row for row in at if row not in failed]
        if not kept:
            reason = reason or next((row.reason for row in rows if row.reason), None)
        return Cell(label, column, better, causal, kept, failed, rows, rate, reason, allowed)

    def in_column(self, column: str) -> list[Cell]:
        return [cell for cell in self.cells.values() if cell.column == column]

    def _line_of(self, place: int, column: str, causal: bool | None) -> Cell | None:
        """The line's cell in the form that an entry has, if it has values: the causal form of a column may be one of its own."""
        label = self.lines[place]
        cells = (self.cells.get((name, column)) for name in (f"{label}, causal", label))
        return next(
            (cell for cell in cells if cell and cell.values and cell.causal == causal), None
        )

    def three_lines(self, column: str, causal: bool | None) -> dict[str, float | None]:
        """Chance, and the best value of no mixing and of the bag; None where one is not known."""
        chances = (
            row.chance
            for cell in self.in_column(column)
            for row in cell.tried
            if cell.causal == causal and row.chance is not None
        )
        known = {"chance": next(chances, None)}
        best = best_of(self.columns[column]["better"])
        for place, name in enumerate(("unmixed", "bag")):
            line = self._line_of(place, column, causal)
            known[name] = None if line is None else best(line.values)
        return known

    def passes(self, cell: Cell) -> bool | None:
        """Above the three lines with every seed; None where lines or values are not known."""
        lines = self.three_lines(cell.column, cell.causal).values()
        if not cell.values or None in lines:
            return None
        return all(cell.passes(value) for value in lines if value is not None)

    def mark(self, cell: Cell) -> str:
        """ "reached", "in part", "not reached", or "" where there is nothing or nothing to compare with."""
        passes = self.passes(cell)
        if passes is None:
            return ""
        if not passes:
            return "not reached"
        reached = cell.column in self.accuracies and (cell.mean or 0.0) >= self.config["mark"]
        return "reached" if reached else "in part"

    def share(self, cell: Cell) -> float | None:
        """max(0, (score - bag) / (1 - bag)) of an accuracy; None where it is not known, and where the bag has all."""
        bag = self.three_lines(cell.column, cell.causal)["bag"]
        if cell.column not in self.accuracies or cell.mean is None or bag is None or bag >= 1:
            return None
        return max(0.0, (cell.mean - bag) / (1 - bag))

    def gain(self, label: str) -> float | None:
        """Mean of the shares in the columns `gained`; None where one is not known."""
        cells = [self.cells.get((label, name)) for name in self.gained]
        shares = [share for cell in cells if cell and (share := self.share(cell)) is not None]
        return fmean(shares) if shares and len(shares) == len(cells) else None

    @cached_property
    def gained(self) -> list[str]:
        """The columns of accuracy in which every entry has been asked: a gain is of the same columns for all."""
        left = {
            cell.column
            for cell in self.cells.values()
            if cell.entry in self.labels
            if self.share(cell) is None and not (cell.reason or cell.failed)
        }
        return [n for n in self.accuracies if not (self.columns[n]["later"] or n in left)]

    def at_equal_time(self, column: str) -> dict[str, float]:
        """Entry -> validation score at the time at which the fastest of them ended, read off the curves."""
        ran = {
            cell.entry: [row for row in cell.rows if row.steps] for cell in self.in_column(column)
        }
        times = [row.seconds for rows in ran.values() for row in rows if row.seconds]
        at = {}
        for label, rows in ran.items() if times else ():
            looks = [
                [v for n, v in row.curve if n * row.seconds <= min(times) * row.steps * 1.001]
                for row in rows
            ]
            if looks and all(looks):
                at[label] = fmean(one[-1] for one in looks)
        return at

    # ------------------------------------------------------------------ claims

    def judged(self) -> list[Facts]:
        return [judge(self, claim) for claim in self.config["claims"]]

    def column(self, expected: Facts) -> str:
        return expected["column"] or self.trained[0]


def _is_of(row: Row, column: Facts | None) -> bool:
    """True for a row of the column's kind, and of its setting where it is timed."""
    if not column or row.kind != column["kind"]:
        return False
    setting = column.get("setting", {})
    return row.kind == "trained" or all(row.setting[name] == setting[name] for name in SETTING)


def _where(row: Row) -> str | None:
    """What rows must share to be compared: the data that they were trained on, the machine that was timed."""
    return row.data if row.kind == "trained" else row.provenance.machine


def _line(label: str) -> str:
    """The line of a label, whose causal form has one of its own."""
    return label.removesuffix(", causal")


_started = attrgetter("provenance.started")


def questions(rows: Iterable[Row]) -> list[Results]:
    """The questions that these rows are of, each as it was asked last; the newest question first, and what `recommend` measured last."""
    every = list(rows)
    records = sorted((row for row in every if row.kind == "asked"), key=_started)
    asked = {row.question: row for row in records}  # of two that were begun at once the later
    order = sorted(asked.values(), key=lambda row: (row.question != MEASURED, _started(row)))
    return [Results(row, every) for row in reversed(order)]
