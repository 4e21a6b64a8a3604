"""Running a question: what is missing in the ledger is done, each result kept before the next begins.

Killed at any point, the next call goes on where this one was; several processes on one ledger share the work. What decides most comes
first: timings, then the lines and every entry in every column from the first seeds at one rate, then the other rates, then the other
seeds.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap, zip_longest
from math import inf
from operator import itemgetter
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from regard.core import OptionError
from regard.core.files import check_writable
from regard.lab import require_packages
from regard.lab.experiment import laws, mechanism_laws, speed, trial
from regard.lab.experiment.display import Display, displayed
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.ledger import Ledger, row_key, trial_key
from regard.lab.experiment.plan import Plan
from regard.lab.experiment.provenance import clock, own_device, provenance
from regard.lab.experiment.question import Column, Question
from regard.lab.experiment.results import (
    WIDEST,
    Results,
    best_of,
    best_rate,
    counted,
    grid_of,
    rate_means,
    wider,
)
from regard.lab.experiment.row import Row
from regard.lab.experiment.trial import Cell
from regard.lab.experiment.workers import Claims, Job, share, share_on_ray
from regard.lab.train.launched import processes

Callback = Callable[[], object]  # what is called when something has happened
LEDGER = Path("runs/arena/ledger.sqlite")
FOLDER = Path("runs/arena/trials")
DRAWING = 0.05  # share of the time, at most, in which pages are drawn
SEARCHED = {"screen": 1, "comparison": 2}  # seeds from which rates are searched
MORE = 4  # seeds that are added at once until a claim is told
MOST_SEEDS = 64


@dataclass(kw_only=True)
class Outcome:
    """The outcome of asking a question."""

    question: str
    new: int = 0  # results made since, by this process or another
    failed: int = 0  # of them, trainings without a value
    found: int = 0  # results that the ledger had before
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
    gpus: float | None = None,
    progress: bool = False,
    checked: Callback = lambda: None,
    redraw: Callback = lambda: None,
    outcome: Outcome | None = None,
) -> list[Row]:
    """Do what is missing in the ledger, and return the question's records, the last as it stands, and the rows that this names.

    After so many `hours`, or the question's, nothing new is begun. until_told: seeds are added until every claim is told, or the time is
    spent. on_ray: training is done by Ray's workers, each trial with so many `gpus` (None: one where this machine has one). checked: called once the question has passed the laws, before anything
    is computed. redraw: called as results come. `folder` keeps unfinished training. A pair that a mechanism's capabilities forbid
    has a reason instead of rows, and so has a mixer of one's own that breaks a law; the library's are held to theirs by its tests.

    Raises ExperimentError before any compute where the question breaks a law of an experiment, OptionError or UnknownNameError where it
    names what does not exist, PathError if the folder cannot be written.
    """
    if processes() > 1:
        raise OptionError(
            f"ask cannot run as {processes()} processes of a launcher: each of its trials trains in one process. Start it "
            "several times on one ledger, without the launcher: they share the work."
        )
    if gpus is not None and not on_ray:
        raise OptionError(
            "ask: gpus are of a trial on Ray; without on_ray a process takes what there is"
        )
    if on_ray:
        require_packages(["ray"], "lab,ray")
    if until_told and question.kind == "screen":
        raise OptionError(
            f"ask: until_told asks for claims, and question {question.name} is a screen"
        )
    if hours is not None:
        question = replace(question, hours=hours)
    check_writable(Path(folder), folder=True)
    mine = nullcontext(ledger) if isinstance(ledger, Ledger) else Ledger(ledger)
    with mine as opened, displayed(progress) as display:
        told = outcome or Outcome(question=question.name)
        asking = Asking(question, opened, Path(folder), display, told, on_ray, gpus, redraw)
        return asking.all(until_told, checked)


@dataclass
class Asking:
    """One call of `ask`."""

    question: Question
    ledger: Ledger
    folder: Path
    display: Display
    outcome: Outcome
    on_ray: bool
    gpus: float | None
    redraw: Callback

    def __post_init__(self):
        question = self.question
        self.began = clock()
        self.end = monotonic() + 3600 * (question.hours or inf)
        self.device = own_device()
        self.gpus = float(self.device == "cuda") if self.gpus is None else self.gpus
        self.workers = Claims(self.ledger.path)
        self.next_draw = -inf
        self.plan = Plan(question)
        self.searched = question.seeds[: SEARCHED[question.kind]]

    def all(self, until_told: bool, checked: Callback) -> list[Row]:
        question = self.question
        began = perf_counter()
        mixers = [entry for entry in question.entries if entry.mixer]
        for entry in mixers:
            entry.sketch()  # wrong names and options are found here
        met = laws.check(question, self.plan.load)
        checked()
        own = [one for one in mixers if not one.written.__module__.startswith("regard.")]
        self._judge(own)
        self.asked = self._ask(met, last=question.kind == "screen")
        reasons = [cell.reason for cell in self.plan.cells.values()]
        if reasons and all(reasons) and not question.timed:
            raise OptionError(f"question {question.name}: nothing of it can be run. {reasons[0]}")
        self.display.plan(len(own) + self._planned(), self.end - monotonic())
        for setting in question.timed:
            if able := self.plan.able(setting):
                self._share([self._timing(able, setting)])
        if question.base:
            vary = tuple(self._shelled(one, question.base) for one in question.vary)
            self.plan.question = question = replace(question, vary=vary)
            self.asked = self._ask(met)
        for later in (False, True):
            columns = [column for column in question.trained if column.later == later]
            self._search([cell for column in columns for cell in self.plan.runnable(column)])
            self._seeds(columns, question.seeds[len(self.searched) :])
        first = max(question.seeds) + 1
        for seed in range(first, first + MOST_SEEDS - len(question.seeds), MORE):
            if not until_told or self._late() or not (wide := self._untold()):
                break
            self._seeds(wide, range(seed, seed + MORE))
        self.outcome.seconds = perf_counter() - began
        self._draw(now=True)
        cells = {line[2] for line in self.asked.config["cells"]}
        cells |= {mechanism_laws.key(entry) for entry in own}
        asked = self.ledger.asked(question.name)
        return [*asked, *(row for row in self.ledger.rows() if row.cell in cells)]

    def _ask(self, met: Mapping[int, str], *, last: bool = True) -> Row:
        """The record, kept in the ledger before anything of it is run; anew unless it was asked like this before, or `last`."""
        question = self.plan.question
        config = self.plan.record(met)
        row = Row(
            kind="asked", question=question.name, column="", entry="", source="", config=config,
            cell=trial_key({"kind": "asked", "config": config}),  # no result has it
            provenance=provenance(device=self.device, of=laws.worst_commit(question)),
        )  # fmt: skip
        history = self.ledger.asked(question.name)
        for known in history[-1:] if last else history:
            if known.config == config:
                return known
        self.ledger.put(row_key(row), row)
        return row

    def _planned(self) -> int:
        """Timings and trials that are known from the start; wider rates, and seeds until all is told, come on top."""
        question = self.question
        searched = len(self.searched)
        cells = len({cell.id for cell in self.plan.cells.values() if not cell.reason})
        shells = max(0, len(question.shells) - 1) * len(question.trained)
        timed = sum(bool(self.plan.able(setting)) for setting in question.timed)
        searches = (cells + shells) * (len(question.rates) or 1) * searched
        return timed + searches + cells * (len(question.seeds) - searched)

    # ------------------------------------------------------------------ training

    def _search(self, cells: Sequence[Cell]) -> None:
        """Every cell from the first seeds at each rate; in a comparison, rates are widened until the best is inside."""
        grids = {cell.id: self._grid(cell) for cell in cells}
        wider = True
        while wider:
            columns = ([(cell, rate) for rate in grids[cell.id]] for cell in cells)
            tried = [one for row in zip_longest(*columns) for one in row if one]
            self._train((*one, seed) for one in tried for seed in self.searched)
            widened = [self._widened(cell, grids[cell.id]) for cell in cells]
            wider = any(widened) and not self._late()

    def _grid(self, cell: Cell) -> list:
        """The rates of the question, and those by which an earlier call widened them."""
        return grid_of(self._counted(cell), vars(self.question), cell.column.task.better) or [None]

    def _widened(self, cell: Cell, grid: list[float]) -> bool:
        best = self._best(cell)
        full = len(grid) >= len(self.question.rates) + WIDEST
        more = wider(grid, best) if self.question.base and best and not full else None
        if more:
            insort(grid, more)
        return bool(more)

    def _seeds(self, columns: Sequence[Column], seeds: Iterable[int]) -> None:
        """Every entry in every column from these seeds, at the best rate so far."""
        first = (self.question.rates or (None,))[0]
        for seed in seeds:
            cells = [cell for column in columns for cell in self.plan.runnable(column)]
            self._train((cell, self._best(cell) or first, seed) for cell in cells)

    def _best(self, cell: Cell) -> float | None:
        return best_rate(self._counted(cell), cell.column.task.better)

    def _counted(self, cell: Cell) -> list[Row]:
        task = cell.column.task
        data = self.plan.load(task).sha256
        rows = [row for row in self.ledger.of_cell(cell.id) if row.data == data]
        return counted(rows, vars(self.question), task.better)

    def _shelled(self, column: Any, base: Entry) -> Any:
        """The column in the shell that is best for the baseline, by its mean validation score at its best rate.

        Seeds of the search count alone: those that come later must not turn the choice.
        """
        if not isinstance(column, Column):
            return column
        tried = [self.plan.cell(base, replace(column, shell=one)) for one in self.question.shells]
        self._search([cell for cell in tried if not cell.reason])
        best = best_of(column.task.better)
        scored = [
            (best(means.values()), cell.column)
            for cell in tried
            if (means := rate_means(r for r in self._counted(cell) if r.seed in self.searched))
        ]
        return best(scored, key=itemgetter(0), default=(None, column))[1]

    def _train(self, trials: Iterable[tuple[Cell, float | None, int]]) -> None:
        self._share(starmap(self._training, trials), on_ray=self.on_ray)

    def _training(self, cell: Cell, rate: float | None, seed: int) -> Job:
        splits = self.plan.load(cell.column.task)
        key = trial_key({"cell": cell.id, "seed": seed, "rate": rate, "data": splits.sha256})
        make = partial(
            trial.run, cell=cell, seed=seed, rate=rate, base=self.question.base, question=self.question.name,
            measures=self.question.measures, folder=None if self.on_ray else self.folder / key[:16],
            device=("cuda" if self.gpus else "cpu") if self.on_ray else self.device,
        )  # fmt: skip
        at = f", rate {rate:g}" if rate else ""
        what = f"{cell.column.name}: {cell.entry.label}, seed {seed}{at}"
        return Job(key=key, what=what, found=partial(self._found, key), make=make, data=splits, keep=self._keep)  # fmt: skip

    # ------------------------------------------------------------------ timing, and the laws of mechanisms

    def _timing(self, able: list[Entry], setting: speed.Setting) -> Job:
        cells = {entry.label: self.plan.timed_cell(entry, setting) for entry in able}
        machine = provenance(device=setting.device).machine
        keys = {name: trial_key({"cell": cell, "machine": machine}) for name, cell in cells.items()}

        def missing() -> list[Entry]:
            return [entry for entry in able if keys[entry.label] not in self.ledger]

        def found() -> bool:
            if missing():
                return False
            for key in keys.values():
                self._seen(self.ledger.get(key))
            return True

        def keep(timed: list[Row]) -> None:
            for row in timed:
                self._keep(replace(row, question=self.question.name, cell=cells[row.entry]))

        return Job(
            key=trial_key({"kind": "timed", "trials": sorted(keys.values())}),
            what=f"{setting.name} tokens, {len(able)} mechanisms",
            found=found,
            make=lambda _: speed.measure(missing(), setting),
            keep=keep,
            alone=True,
        )

    def _judge(self, entries: list[Entry]) -> None:
        """Runs the laws of these mechanisms; who breaks one is not measured."""
        keys = {entry.label: mechanism_laws.key(entry) for entry in entries}
        self._share(
            Job(
                key=keys[entry.label],
                what=f"laws of {entry.name}",
                found=partial(self.ledger.__contains__, keys[entry.label]),
                make=partial(mechanism_laws.judge, entry, self.question.name),
                keep=self._keep,
            )
            for entry in entries
        )
        for label, key in keys.items():
            if (row := self.ledger.get(key)) and row.reason:
                self.plan.broken[label] = row.reason

    # ------------------------------------------------------------------ bookkeeping

    def _share(self, jobs: Iterable[Job], on_ray: bool = False) -> None:
        """Training may be done by Ray; all else is done here."""
        listed = list(jobs)
        display = self.display
        display.plan(len(display.moved | {job.key for job in listed}))
        on = partial(share_on_ray, gpus=self.gpus or 0)
        of = on if on_ray else partial(share, claims=self.workers)
        self.outcome.left += of(listed, doing=display.doing, late=self._late, done=display.done)

    def _late(self) -> bool:
        return monotonic() > self.end

    def _found(self, key: str) -> bool:
        row = self.ledger.get(key)
        if not row:
            return False
        if key not in self.display.moved:  # each round of a search asks for those before it again
            self._seen(row)
            if self.display.begun:
                self.display.say(row)  # another process has done it
        return True

    def _keep(self, row: Row) -> None:
        self.ledger.put(row_key(row), row)
        self._made(row)
        self.display.say(row)
        self._draw()

    def _seen(self, row: Row | None) -> None:
        if row and row.provenance.started > self.began:  # another process of this call has made it
            self._made(row)
        else:
            self.outcome.found += 1

    def _made(self, row: Row) -> None:
        self.outcome.new += 1
        self.outcome.failed += row.kind == "trained" and row.value is None

    def _draw(self, now: bool = False) -> None:
        began = monotonic()
        if now or began > self.next_draw:
            self.redraw()
            ended = monotonic()
            self.next_draw = ended + (ended - began) / DRAWING

    def _untold(self) -> list[Column]:
        """The columns of claims that more seeds would tell."""
        results = Results(self.asked, self.ledger.rows())
        names = {
            bound["column"]
            for one in results.judged()
            for bound in one["bounds"]
            if one["verdict"] == "cannot tell" and one["seeds"]
        }
        return [column for column in self.plan.question.trained if column.name in names]
