"""Running a question: what is missing in the ledger is done, each result kept before the next begins.

Killed at any point, the next call goes on where this one was; several processes on one ledger share the work. What decides most comes
first: timings, then every entry in every column from one seed at one rate, then the other rates, then the other seeds.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from regard.core import OptionError, RegardError
from regard.core.errors import visible
from regard.lab.data.files import check_writable
from regard.lab.experiment import laws, mechanism_laws, on_ray as ray_tasks, speed, trial
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.ledger import Ledger, row_key, trial_key
from regard.lab.experiment.lines import LINES
from regard.lab.experiment.provenance import describe, provenance, versions
from regard.lab.experiment.question import Column, Question
from regard.lab.experiment.results import Results, best_rate
from regard.lab.experiment.row import LONGEST_LIST, Row, as_json
from regard.lab.experiment.shell import obstacle
from regard.lab.experiment.workers import Claims, Job, share
from regard.lab.tasks import Splits, Task
from regard.lab.train.launched import processes
from regard.positions import POSITIONS, AbsolutePosition

LEDGER, FOLDER = Path("runs/arena/ledger.sqlite"), Path("runs/arena/trials")
REDRAW = 10.0  # seconds
SEARCHED = 2  # seeds from which the rates of a comparison are searched
RATIO = 3.0  # of neighbouring rates, where a grid has only one
WIDEST = 6  # rates by which a grid may grow
MORE = 4  # seeds that are added at once until a claim is told
MOST_SEEDS = 64


@dataclass(kw_only=True)
class Outcome:
    """The outcome of asking a question."""

    question: str
    new: int = 0  # results made now
    found: int = 0  # results that the ledger had
    left: int = 0  # not begun, for want of time
    seconds: float = 0.0


def ask(
    question: Question,
    ledger: Ledger | Path | str = LEDGER,
    folder: Path | str = FOLDER,
    *,
    hours: float | None = None,
    until_told: bool = False,
    on_ray: bool = False,
    progress: bool = False,
    redraw: Callable[[], object] | None = None,
    checked: Callable[[], object] | None = None,
    command: str | None = None,
    outcome: Outcome | None = None,
) -> list[Row]:
    """Do what is missing in the ledger, and return the rows of the question as it stands.

    After so many `hours`, or the question's, nothing new is begun. until_told: seeds are added until every claim is told, or the time is
    spent. on_ray: training is done by Ray's workers. checked: called once the question has passed the laws, before anything
    is computed. redraw: called as results come. `folder` keeps unfinished training; `command` is
    recorded as the origin, this process's own by default. A pair that a mechanism's capabilities forbid, and one that breaks a
    law of its own, becomes a row with the reason.

    Raises ExperimentError before any compute where the question breaks a law of an experiment, OptionError or UnknownNameError where it
    names what does not exist, PathError if the folder cannot be written.
    """
    if processes() > 1:
        raise OptionError(
            f"ask cannot run as {processes()} processes of a launcher: each of its trials trains in one process. Start it "
            "several times on one ledger, without the launcher: they share the work."
        )
    if hours is not None and not hours > 0:
        raise OptionError(f"hours ({hours}) must be positive")
    check_writable(Path(folder), folder=True)
    opened = ledger if isinstance(ledger, Ledger) else Ledger(_made(Path(ledger)))
    try:
        with _display(progress) as display:
            asking = _Asking(
                question, opened, Path(folder), command, display, hours, redraw, on_ray
            )
            return asking.all(until_told, outcome or Outcome(question=question.name), checked)
    finally:
        if opened is not ledger:
            opened.close()


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@dataclass(frozen=True)
class Cell:
    """One entry in one column: a trial without its seed and rate."""

    entry: Entry
    column: Column
    id: str  # Row.cell
    reason: str | None = None  # why it cannot be run

    @property
    def name(self) -> tuple[str, str]:
        return self.entry.label, self.column.name


class _Asking:
    def __init__(
        self,
        question: Question,
        ledger: Ledger,
        folder: Path,
        command: str | None,
        display: "_Display",
        hours: float | None,
        redraw: Callable[[], object] | None,
        on_ray: bool,
    ):
        self.question, self.ledger, self.folder = question, ledger, folder
        self.command, self.display, self.redraw, self.on_ray = command, display, redraw, on_ray
        hours = question.hours if hours is None else hours
        self.end = math.inf if hours is None else time.monotonic() + 3600 * hours
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.workers = Claims(ledger.path)
        self.splits: dict[Any, tuple[Task, Splits]] = {}
        self.broken: dict[str, str] = {}  # label -> the law of mechanisms that it breaks
        self.drawn = -math.inf
        labels = [entry.label for entry in question.entries]
        self.lines = [line for line in LINES if question.trained and line.label not in labels]
        self.cells: dict[tuple[str, str], Cell] = {}

    def all(
        self,
        until_told: bool,
        outcome: Outcome,
        checked: Callable[[], object] | None = None,
    ) -> list[Row]:
        self.outcome, began = outcome, time.perf_counter()
        question = self.question
        for entry in question.entries:
            if entry.mixer is not None:
                entry.sketch()  # wrong names and options are found here
        met = laws.check(question, self.load)
        if checked is not None:
            checked()
        own = [entry for entry in question.entries if entry.mixer is not None and ":" in entry.name]
        self._share([self._judging(entry) for entry in own])
        self.asked = self._ask(met, last=question.kind == "screen")
        judged = [
            entry for entry in question.entries if entry.mixer is not None and ":" not in entry.name
        ] * bool(question.timed and question.trained)
        self.display.plan(len(own) + len(judged) + self._planned(), self.end - time.monotonic())
        self._time(question.timed)
        if question.kind == "comparison":
            shelled = self._shelled()
            vary = tuple(shelled.get(one.name, one) for one in question.vary)
            self.question = question = replace(question, vary=vary)
            self.asked = self._ask(met)
        first = [column for column in question.trained if not column.later]
        self._train(first)
        self._train([column for column in question.trained if column.later])
        seeds = len(question.seeds)
        while until_told and not self._late() and seeds < MOST_SEEDS and (wide := self._untold()):
            more = range(seeds, seeds + MORE)
            self._seeds(wide, [max(question.seeds) + 1 + n - len(question.seeds) for n in more])
            seeds += MORE
        self._share([self._judging(entry) for entry in judged])
        self.outcome.seconds = time.perf_counter() - began
        self._draw(now=True)
        return self._rows()

    def load(self, task: Task) -> Splits:
        """Once for equal tasks, such as the causal forms that each entry makes."""
        key: Any = task
        try:
            hash(task)
        except TypeError:
            key = id(task)
        if key not in self.splits:
            splits = task.load()
            if task.has_scores and len(splits.test) > LONGEST_LIST:
                raise OptionError(
                    f"{self.question.name} cannot be asked: {task.name} has {len(splits.test):,} test items, and a result holds "
                    f"the scores of at most {LONGEST_LIST:,}. Give it a smaller test set."
                )
            self.splits[key] = task, splits
        return self.splits[key][1]

    # ------------------------------------------------------------------ what is asked

    def _ask(self, met: Mapping[int, str], *, last: bool = True) -> Row:
        """The question as it stands, kept in the ledger before anything of it is run; anew unless it was asked like this before, or `last`."""
        question = self.question
        for column in question.trained:
            for entry in (*question.entries, *self.lines):
                cell = self._cell(entry, column)
                self.cells[cell.name] = cell
            if column.either and any(
                self.cells[e.label, column.name].column.causal for e in question.entries
            ):
                for line in LINES:  # the lines of the causal form
                    cell = self._cell(line, column.causally())
                    self.cells[f"{line.label}, causal", column.name] = cell
        config = as_json(
            question.details()
            | {
                "limits": question.limits,
                "baseline": question.baseline,
                "mark": question.mark,
                "seeds": question.seeds,
                "rates": question.rates,
                "entries": [_entry_facts(one) for one in question.entries],
                "lines": [line.label for line in LINES] if question.trained else [],
                "columns": [self._column_facts(one) for one in question.vary],
                "cells": [
                    [label, name, cell.id, cell.column.causal, cell.reason, self._allowed(cell)]
                    for (label, name), cell in self.cells.items()
                ]
                + [
                    [entry.label, one.name, self._timed_cell(entry, one), None, None, None]
                    for one in question.timed
                    for entry in question.entries
                ],
                "claims": [asdict(claim) for claim in question.claims],
                "laws": {str(law): how for law, how in met.items()},
            }
        )
        row = Row(
            kind="asked",
            question=question.name,
            column="",
            entry="",
            cell=_stated(config),
            source="",
            config=config,
            provenance=provenance(
                device=self.device, command=self.command, of=laws.worst_commit(question)
            ),
        )
        history = self.ledger.asked(question.name)
        for known in history[-1:] if last else history:
            if known.config == config:
                return known
        self.ledger.put(row_key(row), row)
        return row

    def _column_facts(self, one: "Column | speed.Setting") -> dict[str, Any]:
        if not isinstance(one, Column):
            return {"name": one.name, "kind": "timed", "setting": asdict(one)}
        train = one.train
        return {
            "name": one.name, "kind": "trained", "task": one.task.name, "metric": one.task.metric, "better": one.task.better,
            "length": one.task.max_len, "causal": one.causal, "later": one.later, "shell": asdict(one.shell),
            "steps": getattr(train, "steps", None), "tokens": getattr(train, "tokens", None), "batch": train.batch_size,
        }  # fmt: skip

    def _allowed(self, cell: Cell) -> float | None:
        if self.question.allowed is None or cell.entry in self.lines or cell.reason:
            return None
        return self.question.allowed(cell.entry, cell.column)

    def _cell(self, entry: Entry, column: Column) -> Cell:
        """The trial's content; the causal form where that is the only one. Lines take only positions that are added."""
        if any(entry.mixer is line.mixer for line in LINES) and not issubclass(
            POSITIONS[column.shell.position], AbsolutePosition
        ):
            column = replace(column, shell=replace(column.shell, position="sinusoidal"))
        splits = self.load(column.task)
        reason = self.broken.get(entry.label)
        if reason is None:
            reason = obstacle(column, entry, splits)
            if reason is not None and column.either and not column.causal:
                other = column.causally()
                if obstacle(other, entry, self.load(other.task)) is None:
                    return self._cell(entry, other)
        try:
            content = trial.content(
                column,
                entry,
                None if reason else self.load(column.task),
                self.base,
                self.question.measures,
            )
        except RegardError as error:  # it cannot take the shell, or is of no equal size
            reason = reason or str(error)
            content = {"refused": reason} | entry.identity()
        return Cell(entry, column, trial_key(content), reason)

    @property
    def base(self) -> Entry | None:
        """The entry whose size the others are given; None in a screen."""
        if self.question.kind == "screen":
            return None
        return next(
            entry for entry in self.question.entries if entry.label == self.question.baseline
        )

    def _planned(self) -> int:
        """Timings and trials that are known from the start; wider rates, and seeds until all is told, come on top."""
        question = self.question
        rates, seeds = len(question.rates) or 1, len(question.seeds)
        searched = 1 if question.kind == "screen" else min(SEARCHED, seeds)
        shells = max(0, len(question.shells) - 1) * len(question.trained)
        cells = len({cell.id for cell in self.cells.values() if cell.reason is None})
        timed = sum(bool(self._able(setting)) for setting in question.timed)
        return timed + (cells + shells) * rates * searched + cells * (seeds - searched)

    # ------------------------------------------------------------------ training

    def _train(self, columns: Sequence[Column]) -> None:
        question = self.question
        rates: Sequence[float | None] = question.rates or (None,)
        seeds = question.seeds
        if question.kind == "screen":
            for rate in rates:
                self._round(columns, seeds[0], [rate])
            for seed in seeds[1:]:
                self._round(columns, seed, None)
            return
        cells = [cell for column in columns for cell in self._of(column)]
        self._search(cells)
        self._seeds(columns, [seed for seed in seeds if seed not in seeds[:SEARCHED]])

    def _seeds(self, columns: Sequence[Column], seeds: Iterable[int]) -> None:
        for seed in seeds:
            self._round(columns, seed, None)

    def _of(self, column: Column) -> list[Cell]:
        return [
            cell
            for (_, name), cell in self.cells.items()
            if name == column.name and cell.reason is None
        ]

    def _round(
        self, columns: Sequence[Column], seed: int, rates: Sequence[float | None] | None
    ) -> None:
        """Every entry in every column from this seed, at these rates or the best so far."""
        jobs = (
            self._training(cell, seed, rate)
            for column in columns
            for cell in self._of(column)
            for rate in (rates if rates is not None else [self._best(cell)])
        )
        self._run(jobs)

    def _best(self, cell: Cell) -> float | None:
        return (
            best_rate(self._rows_of(cell), cell.column.task.better)
            or (self.question.rates or (None,))[0]
        )

    def _search(self, cells: Sequence[Cell]) -> None:
        """Rates of each entry from two of its seeds, widened until the best is inside."""
        question = self.question
        grids = {cell.id: sorted(question.rates) for cell in cells}
        while True:
            jobs = [
                self._training(cell, seed, rate)
                for cell in cells
                for rate in grids[cell.id]
                for seed in question.seeds[:SEARCHED]
            ]
            self._run(jobs)
            if self._late():
                return
            wider = [cell for cell in cells if self._widened(cell, grids)]
            if not wider:
                return

    def _widened(self, cell: Cell, grids: dict[str, list[float]]) -> bool:
        grid = grids[cell.id]
        best = best_rate(self._rows_of(cell), cell.column.task.better)
        ratio = grid[1] / grid[0] if len(grid) > 1 else RATIO
        if best is None or len(grid) >= len(self.question.rates) + WIDEST:
            return False
        if math.isclose(best, grid[0]):
            grid.insert(0, grid[0] / ratio)
        elif math.isclose(best, grid[-1]):
            grid.append(grid[-1] * ratio)
        else:
            return False
        return True

    def _shelled(self) -> dict[str, Column]:
        """Column -> the same in the shell that was best for the baseline."""
        question = self.question
        base = self.base
        chosen = {}
        for column in question.trained:
            assert base is not None
            tried = [self._cell(base, replace(column, shell=shell)) for shell in question.shells]
            self._search([cell for cell in tried if cell.reason is None])
            scored = [(score, cell) for cell in tried if (score := self._score(cell)) is not None]
            if scored:
                better = max if column.task.better == "higher" else min
                chosen[column.name] = better(scored, key=lambda one: one[0])[1].column
        return chosen

    def _score(self, cell: Cell) -> float | None:
        """Mean validation score at the best rate, from the seeds of the search: those that come later must not turn the choice."""
        searched = self.question.seeds[:SEARCHED]
        rows = [row for row in self._rows_of(cell) if row.seed in searched]
        rate = best_rate(rows, cell.column.task.better)
        values = [
            row.valid_value for row in rows if row.rate == rate and row.valid_value is not None
        ]
        return sum(values) / len(values) if values else None

    def _training(self, cell: Cell, seed: int, rate: float | None) -> Job:
        splits = self.load(cell.column.task)
        key = trial_key({"cell": cell.id, "seed": seed, "rate": rate, "data": splits.sha256})
        make = partial(
            trial.run, cell=cell, seed=seed, rate=rate, base=self.base, question=self.question.name,
            measures=self.question.measures, folder=self.folder / key[:16], command=self.command, device=self.device,
        )  # fmt: skip

        def do() -> None:
            self._keep(key, make(splits))

        at = "" if rate is None else f", rate {rate:g}"
        what = f"{cell.column.name}: {cell.entry.label}, seed {seed}{at}"
        return Job(
            key=key,
            what=what,
            found=partial(self._found, key),
            do=do,
            make=make,
            data=splits,
            keep=partial(self._keep, key),
        )

    # ------------------------------------------------------------------ timing, and the laws of mechanisms

    def _time(self, settings: Sequence[speed.Setting]) -> None:
        for setting in settings:
            if able := self._able(setting):
                self._share([self._timing(setting, able)])

    def _able(self, setting: speed.Setting) -> list[Entry]:
        return [
            entry
            for entry in self.question.entries
            if entry.mixer is not None
            and entry.label not in self.broken
            and speed.obstacle(entry, setting) is None
        ]

    def _timing(self, setting: speed.Setting, able: list[Entry]) -> Job:
        cells = {entry.label: self._timed_cell(entry, setting) for entry in able}
        keys = {
            entry.label: trial_key(
                {"cell": cells[entry.label], "machine": describe(setting.device)}
            )
            for entry in able
        }

        def missing() -> list[Entry]:
            return [entry for entry in able if keys[entry.label] not in self.ledger]

        def found() -> bool:
            self.outcome.found += 0 if missing() else len(able)
            return not missing()

        def do() -> None:
            entries = missing()
            for entry, row in zip(
                entries, speed.measure(entries, setting, self._origin(setting)), strict=True
            ):
                self._keep(
                    keys[entry.label],
                    row.as_row(self.question.name, setting.name, cells[entry.label]),
                )

        key = trial_key({"kind": "timed", "trials": sorted(keys.values())})
        return Job(
            key=key,
            what=f"{setting.name} tokens, {len(able)} mechanisms",
            found=found,
            do=do,
            alone=True,
        )

    def _timed_cell(self, entry: Entry, setting: speed.Setting) -> str:
        about = versions()
        content = {
            "kind": "timed",
            "setting": asdict(setting),
            "torch": about["torch"],
            "regard": about["regard"],
        }
        return trial_key(content | entry.identity())

    def _origin(self, setting: speed.Setting) -> Any:
        return provenance(device=setting.device, dtype=setting.dtype, command=self.command)

    def _judging(self, entry: Entry) -> Job:
        key = mechanism_laws.key(entry)

        def judged(row: Row | None) -> bool:
            if row is not None and row.reason is not None:
                self.broken[entry.label] = row.reason
            return row is not None

        def do() -> None:
            row = mechanism_laws.judge(entry, self.question.name, self.command)
            self._keep(key, row)
            judged(row)

        return Job(
            key=key, what=f"laws of {entry.name}", found=lambda: judged(self.ledger.get(key)), do=do
        )

    # ------------------------------------------------------------------ bookkeeping

    def _run(self, jobs: Iterable[Job]) -> None:
        if self.on_ray:
            listed = self.display.counted(jobs)
            self.outcome.left += ray_tasks.share(listed, self.display.doing, self._late)
        else:
            self._share(jobs)

    def _share(self, jobs: Iterable[Job]) -> None:
        listed = self.display.counted(jobs)
        self.outcome.left += share(listed, self.workers, self.display.doing, self._late)

    def _late(self) -> bool:
        return time.monotonic() > self.end

    def _found(self, key: str) -> bool:
        row = self.ledger.get(key)
        self.outcome.found += row is not None
        if row is not None and self.display.begun and key not in self.display.moved:
            self.display.say(told(row))  # another process has done it
        return row is not None

    def _keep(self, key: str, row: Row) -> None:
        self.ledger.put(key, row)
        self.outcome.new += 1
        self.display.say(told(row))
        self._draw()

    def _draw(self, now: bool = False) -> None:
        if self.redraw is not None and (now or time.monotonic() - self.drawn > REDRAW):
            self.redraw()
            self.drawn = time.monotonic()

    def _rows_of(self, cell: Cell) -> list[Row]:
        return self.ledger.of_cell(cell.id)

    def _rows(self) -> list[Row]:
        cells = {line[2] for line in self.asked.config["cells"]}
        return [
            self.asked,
            *(row for row in self.ledger.rows() if row.cell in cells and row.kind != "asked"),
        ]

    def _untold(self) -> list[Column]:
        """The columns of claims that more seeds would tell."""
        results = Results(self.asked, self.ledger.rows())
        names = {
            results.column(bound.expected)
            for one in results.judged()
            if one.verdict == "cannot tell" and one.seeds is not None
            for bound in one.bounds
        }
        return [column for column in self.question.trained if column.name in names]


def _entry_facts(entry: Entry) -> dict[str, Any]:
    return {"label": entry.label} | entry.identity()


def _stated(config: Mapping[str, Any]) -> str:
    """Identity of a record of what was asked: no result has it."""
    return trial_key({"kind": "asked", "config": config})


def told(row: Row) -> str:
    """The row in a line, as it is shown when it comes."""
    if row.kind == "laws":
        return (
            f"{row.mixer} breaks a law. {row.reason}"
            if row.reason
            else f"{row.mixer} keeps all laws ({row.seconds:.0f} s)"
        )
    if row.reason is not None:
        return f"{row.column}: {row.entry} not run. {row.reason}"
    if row.kind == "timed":
        return f"{row.column}: {row.entry} {row.values['ms']:.3g} ms, {row.values['ms'] / row.values['baseline_ms']:.2f} of softmax"
    at = "" if row.rate is None else f", rate {row.rate:g}"
    return f"{row.column}: {row.entry} {row.metric} {row.value:.3f}, seed {row.seed}{at} ({row.seconds:.0f} s)"


@dataclass
class _Display:
    """A bar of the whole, with time spent and left; what came last is the line above it."""

    bars: Progress | None
    task: Any = None
    total: int = 0
    moved: set[str] = field(default_factory=set)
    begun: bool = False  # something is done here, not found

    def plan(self, total: int, seconds: float = math.inf) -> None:
        """seconds: after which nothing new is begun."""
        if total > self.total and self.bars is not None:
            self.total = total
            self.bars.update(self.task, total=total)
            if seconds < math.inf:
                end = time.strftime("%H:%M", time.localtime(time.time() + seconds))
                self.bars.update(self.task, end=f"nothing begins after {end}")

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        if self.bars is not None:
            if not self.begun:  # what was found says nothing of the time that is left
                self.bars.reset(self.task, completed=len(self.moved))
            self.bars.update(self.task, description=visible(what))
        self.begun = True
        yield

    def counted(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs, each of which moves the bar once: when it is found, done or kept."""

        listed = [
            replace(
                job,
                found=partial(self._moved, job.key, job.found),
                do=partial(self._moved, job.key, job.do),
                keep=None if job.keep is None else partial(self._moved, job.key, job.keep),
            )
            for job in jobs
        ]
        self.plan(len(self.moved | {job.key for job in listed}))
        return listed

    def _moved(self, key: str, call: Callable[..., Any], *given: Any) -> Any:
        came = call(*given)
        if came is not False and key not in self.moved:
            self.moved.add(key)
            if self.bars is not None:
                self.bars.advance(self.task)
        return came

    def say(self, line: str) -> None:
        if self.bars is not None:
            self.bars.console.print(visible(line), highlight=False, markup=False)


@contextmanager
def _display(progress: bool) -> Iterator[_Display]:
    if not progress:
        yield _Display(None)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[end]}"),
    )
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=math.inf) as bars:
        yield _Display(bars, bars.add_task("", total=None, end=""))
