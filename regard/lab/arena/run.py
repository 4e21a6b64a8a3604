"""Running a suite: a rough timing, then laws, training and finer timing in turns, so that whenever it is stopped what is
there is worth reading; each result is in the ledger before the next begins.

Several processes may run suites on one ledger: each does what no other has done or is doing (`regard.lab.arena.claims`).
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from regard.core import OptionError, UnknownNameError, UnsupportedError
from regard.core.errors import visible
from regard.lab.arena import on_ray as ray_tasks, speed, trial
from regard.lab.arena.choice import Choice, check_entries
from regard.lab.arena.claims import Claims, Job, share
from regard.lab.arena.laws import fault, judge, question
from regard.lab.arena.ledger import Ledger, trial_key
from regard.lab.arena.provenance import describe, own_command, provenance, versions
from regard.lab.arena.report.words import milliseconds
from regard.lab.arena.results import (
    LawsChecked,
    NotRun,
    Pass,
    Result,
    Timed,
    Trained,
    current,
    tuned,
)
from regard.lab.arena.suite import ROUGH, Contest, Race, Suite
from regard.lab.data.files import check_writable
from regard.lab.tasks import Splits
from regard.lab.train.launched import processes
from regard.models import StackConfig

REDRAW = 15.0  # seconds


@dataclass(kw_only=True)
class Outcome:
    """The outcome of running a suite; `results` are its rows, new and found."""

    suite: str
    new: int = 0  # trials run now
    found: int = 0  # trials that the ledger had
    left: int = 0  # not begun, for want of time
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)


def run_suite(
    suite: Suite,
    ledger: Ledger,
    run_dir: str | Path,
    *,
    command: str | None = None,
    progress: bool | Progress = True,
    hours: float | None = None,
    redraw: Callable[[], object] | None = None,
    on_ray: bool = False,
) -> Outcome:
    """Do what is missing in the ledger. Killed at any point, the next call goes on where this one was; called by several
    processes at once, each takes a share and all return with everything done. Timings have their machine to themselves.

    A mechanism that breaks a law is neither trained nor timed, and its rough timings no longer count; it, and every pair that its
    capabilities forbid, becomes a NotRun row with the reason. After so many `hours`, or the suite's, nothing new is begun.
    `redraw` is called as results come, at most every REDRAW seconds. on_ray: training is done by Ray's workers. `command` is recorded in the rows as their origin: this process's own by default.
    Raises OptionError or UnknownNameError before any compute if the suite names what does not exist, or enters one label twice, and PathError if the
    folder cannot be written.
    """
    check_entries(suite.choices)
    names = [choice.name for choice in suite.choices]
    for name in suite.trained:
        if name not in names:
            raise UnknownNameError("entry to train", name, names)
    check_writable(Path(run_dir), folder=True)
    if processes() > 1:
        raise OptionError(
            f"arena cannot run as {processes()} processes of a launcher: each of its trials trains in one process. Start it "
            "several times on one ledger, without the launcher: they share the work."
        )
    if hours is not None and not hours > 0:
        raise OptionError(f"hours ({hours}) must be positive")
    with _display(progress, suite) as display:
        ends = suite.hours if hours is None else hours
        run = _SuiteRun(suite, ledger, Path(run_dir), command, display, ends, redraw, on_ray)
        return run.all()


@dataclass(frozen=True)
class _Entered:
    """A contest with its data, and the place and model of each choice that can take part."""

    contest: Contest
    splits: Splits
    able: list[tuple[int, StackConfig]]

    def at(self, rate: float | None) -> Contest:
        """With this learning rate, or its own."""
        if rate is None:
            return self.contest
        return replace(self.contest, train=replace(self.contest.train, lr=rate))

    def key(self, choice: Choice, place: int, seed: int, rate: float | None) -> str:
        model = dict(self.able)[place]
        return trial_key(trial.content(self.at(rate), choice, seed, model, self.splits.sha256))


class _SuiteRun:
    def __init__(
        self,
        suite: Suite,
        ledger: Ledger,
        run_dir: Path,
        command: str | None,
        display: "_Display",
        hours: float | None,
        redraw: Callable[[], object] | None,
        on_ray: bool,
    ):
        self.redraw, self.drawn, self.on_ray = redraw, -math.inf, on_ray
        self.suite, self.ledger, self.run_dir = suite, ledger, run_dir
        self.command, self.display = command, display
        self.end = math.inf if hours is None else time.monotonic() + 3600 * hours
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.choices = suite.choices
        for choice in self.choices:
            choice.sketch()  # wrong names and options are found here
        for contest in suite.contests:
            trial.check_kind(contest.task)
        self.claims = Claims(ledger.path)
        self.outcome = Outcome(suite=suite.name)
        self.read: dict[int, Splits] = {}  # id of a task -> its data
        self.broken: dict[int, str] = {}  # place in choices -> why it is not measured
        self.checks: dict[int, str] = {}  # place in choices -> key of its laws, once they have run

    def all(self) -> Outcome:
        began = time.perf_counter()
        for contest in self.suite.contests:
            if hasattr(contest.task, "path"):  # a wrong one is refused before anything is timed
                self._splits(contest)
        race, trained = self.suite.race, self.suite.trained
        if race is not None and race.rough is not None:
            near = tuple(n for n in race.lengths if n <= ROUGH) or race.lengths[:1]
            self._race(replace(race, lengths=near, seconds=race.rough))
        chosen = [
            p for p, choice in enumerate(self.choices) if not trained or choice.name in trained
        ]
        self._judge(chosen)
        first, *more = self._rounds(chosen)
        self._train(first)
        self._judge([place for place in range(len(self.choices)) if place not in chosen])
        if race is not None:
            self._race(race)
        for jobs in more:
            self._train(jobs)
        self.outcome.results = current(self.outcome.results)
        self.outcome.seconds = time.perf_counter() - began
        return self.outcome

    def _judge(self, places: Iterable[int]) -> None:
        self._share([self._check(place, self.choices[place]) for place in places])

    def _train(self, jobs: Iterable[Job]) -> None:
        if self.on_ray:
            self.outcome.left += ray_tasks.share(jobs, self.display.doing, self._late)
        else:
            self._share(jobs)

    def _share(self, jobs: Iterable[Job]) -> None:
        self.outcome.left += share(
            map(self._drawing, jobs), self.claims, self.display.doing, self._late
        )

    def _late(self) -> bool:
        return time.monotonic() > self.end

    def _drawing(self, job: Job) -> Job:
        def do() -> None:
            job.do()
            self._draw()

        return replace(job, do=do)

    def _draw(self) -> None:
        if self.redraw is not None and time.monotonic() - self.drawn > REDRAW:
            self.redraw()
            self.drawn = time.monotonic()

    def _check(self, place: int, choice: Choice) -> Job:
        asked = question(choice, self.ledger)

        def found() -> bool:
            row = self.ledger.get(asked.key)
            if isinstance(row, LawsChecked):
                self._found(row)
                judged(row)
            return row is not None

        def do() -> None:
            row = judge(asked, self.command)
            self._keep(asked.key, row)
            judged(row)

        def judged(row: LawsChecked) -> None:
            self.checks[place] = asked.key
            why = fault(row)
            if why is not None:
                self.broken[place] = why
                self.display.say(why)

        return Job(key=asked.key, what=f"laws  {choice.name}", found=found, do=do)

    def _splits(self, contest: Contest) -> Splits:
        """The data of its task, read once for all contests of it."""
        if id(contest.task) not in self.read:
            with self.display.doing(f"data  {contest.title}"):
                self.read[id(contest.task)] = contest.task.load()
        return self.read[id(contest.task)]

    def _enter(self, contest: Contest, places: Sequence[int]) -> "_Entered":
        """The contest with its data, and who can take part; the others are noted with the reason."""
        name, splits = contest.title, self._splits(contest)
        able = []
        for place in places:
            choice = self.choices[place]
            reason = self.broken.get(place) or trial.obstacle(contest, choice, splits)
            if reason is None:
                try:
                    able.append((place, trial.model_config(contest, choice, splits)))
                except (OptionError, UnsupportedError) as error:  # at this size
                    reason = str(error)
            if reason is not None:
                self._absent(place, name, reason)
                self.display.advance(_trials(self.suite))
        return _Entered(contest, splits, able)

    def _rounds(self, places: Sequence[int]) -> list[Iterable[Job]]:
        """Everybody once on every task, then with the other learning rates, then from the other seeds at the best of them."""
        if self._late():  # not even the data are loaded
            self.outcome.left += len(self.suite.contests) * len(places) * _trials(self.suite)
            return [[]]
        entered = [self._enter(contest, places) for contest in self.suite.contests]
        first, *more = self.suite.seeds
        each = [(one, place) for one in entered for place, _ in one.able]
        rounds: list[Iterable[Job]] = [
            [self._training(one, place, first, rate) for one, place in each]
            for rate in self.suite.rates or (None,)
        ]
        return rounds + [self._seeded(each, seed) for seed in more]

    def _seeded(self, each: Sequence[tuple["_Entered", int]], seed: int) -> Iterator[Job]:
        """Made only when they begin: the rates are known then."""
        for one, place in each:
            yield self._training(one, place, seed, self._best_rate(one, place))

    def _best_rate(self, entered: "_Entered", place: int) -> float | None:
        """On validation, from the first seed. None: the contest's own."""
        if not self.suite.rates:
            return None
        keys = [
            entered.key(self.choices[place], place, self.suite.seeds[0], rate)
            for rate in self.suite.rates
        ]
        tried = [row for key in keys if isinstance(row := self.ledger.get(key), Trained)]
        return tuned(tried)[0].rate if tried else self.suite.rates[0]

    def _training(self, entered: "_Entered", place: int, seed: int, rate: float | None) -> Job:
        contest, splits = entered.at(rate), entered.splits
        choice, name, model = self.choices[place], contest.title, dict(entered.able)[place]
        key = entered.key(choice, place, seed, rate)
        plain = re.sub(r"[^\w.-]+", ".", f"{contest.task.name}-{choice.name}")
        folder = self.run_dir / f"{plain}-{seed}-{key[:12]}"

        def found() -> bool:
            row = self.ledger.get(key)
            if row is not None:
                self._found(row)
                self.display.advance()
            return row is not None

        make = partial(
            trial.tried,
            contest=contest,
            choice=choice,
            seed=seed,
            model=model,
            run_dir=folder,
            command=self.command or own_command(),
        )

        def keep(row: Result) -> None:
            self._keep(key, row)
            self.display.advance()
            self._draw()

        def do() -> None:
            keep(make(splits, progress=self.display.bars))

        what = f"{name}  {choice.name}  seed {seed}  rate {contest.train.lr:g}"
        return Job(key=key, what=what, found=found, do=do, make=make, data=splits, keep=keep)

    def _race(self, race: Race) -> None:
        """Blocks before bare layers, short lengths before long ones."""
        able: dict[Pass, list[Choice]] = {kind: [] for kind in race.passes}
        for kind, (place, choice) in product(race.passes, enumerate(self.choices)):
            at = speed.Setting(kind=kind, length=race.lengths[0], **_shared(race))
            reason = self.broken.get(place) or speed.obstacle(choice, at)
            if reason is None:
                able[kind].append(choice)
            else:
                self._absent(place, kind, reason)
        self._share(
            self._timing(
                speed.Setting(
                    kind=kind, length=length, device=self.device, unit=unit, **_shared(race)
                ),
                able[kind],
            )
            for unit, length, kind in product(race.units, race.lengths, race.passes)
            if able[kind]
        )

    def _timing(self, setting: speed.Setting, able: list[Choice]) -> Job:
        missing = {
            trial_key(self._timed_content(choice, setting)): choice for choice in able
        }  # until they are found

        def found() -> bool:
            for key in list(missing):
                row = self.ledger.get(key)
                if row is not None:
                    self._found(row)
                    del missing[key]
            if not missing:
                self.display.advance()
            return not missing

        def do() -> None:
            origin = provenance(device=setting.device, dtype=setting.dtype, command=self.command)
            rows = speed.measure(list(missing.values()), setting, origin)
            for key, row in zip(missing, rows, strict=True):
                self._keep(key, row)
            self.display.advance()

        what = f"{setting.kind}  {setting.unit}  {setting.length} tokens"
        content = {"kind": "timed", "setting": asdict(setting), "trials": list(missing)}
        return Job(key=trial_key(content), what=what, found=found, do=do, alone=True)

    def _timed_content(self, choice: Choice, setting: speed.Setting) -> dict[str, Any]:
        about = versions()
        where = {
            "machine": describe(setting.device),
            "torch": about["torch"],
            "regard": about["regard"],
        }
        settings = asdict(setting)
        if setting.unit == "layer":  # as in ledgers from before there were blocks
            del settings["unit"]
        return {"kind": "timed"} | choice.identity() | {"setting": settings} | where

    def _absent(self, place: int, subject: str, reason: str) -> None:
        choice = self.choices[place]
        row = NotRun(
            mixer=choice.name,
            source=choice.source,
            subject=subject,
            reason=reason,
            options=dict(choice.options),
        )
        key = trial_key(
            {"kind": "not run", "laws": self.checks.get(place), "subject": subject}
            | choice.identity()
            | {"reason": reason}
        )
        if key not in self.ledger:
            self.ledger.put(key, row)
            self.display.say(_line(row))
        self.outcome.results.append(row)

    def _keep(self, key: str, row: Result) -> None:
        self.ledger.put(key, row)
        self._noted(row)

    def _noted(self, row: Result) -> None:
        self.outcome.new += 1
        self.outcome.results.append(row)
        self.display.say(_line(row))

    def _found(self, row: Result) -> None:
        self.outcome.found += 1
        self.outcome.results.append(row)


def _shared(race: Race) -> dict[str, Any]:
    return {name: getattr(race, name) for name in ("batch", "dim", "num_heads", "dtype", "seconds")}


def _line(row: Result) -> str:
    match row:
        case LawsChecked(failed_law=None):
            return f"{row.mixer} keeps all laws ({row.seconds:.0f} s)"
        case LawsChecked():
            return f"{row.mixer} breaks {row.failed_law}"
        case Timed():
            what = f"{row.kind} {row.unit} {row.length}: {row.mixer}"
            return f"{what} {milliseconds(row.median_ms)}, {row.ratio:.2f} of softmax"
        case NotRun():
            return f"{row.subject}: {row.mixer} not run. {row.reason}"
    return f"{row.task}: {row.mixer} {row.metric} {row.value:.3f}, seed {row.seed} ({row.seconds:.0f} s)"


def _trials(suite: Suite) -> int:
    """The number of trainings of one mechanism on one task."""
    return len(suite.seeds) - 1 + max(1, len(suite.rates))


class _Display:
    def __init__(self, bars: Progress | None, total: int, name: str):
        self._bars = bars
        self._task = None if bars is None else bars.add_task(name, total=total)
        self._name = name

    @property
    def bars(self) -> bool | Progress:
        return False if self._bars is None else self._bars

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, description=visible(f"{self._name}: {what}"))
        yield

    def advance(self, steps: int = 1) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, steps)

    def say(self, line: str) -> None:
        if self._bars is not None:
            self._bars.console.print(visible(line), highlight=False, markup=False)


@contextmanager
def _display(progress: bool | Progress, suite: Suite) -> Iterator[_Display]:
    trained = len(suite.trained or suite.choices)
    trials = len(suite.contests) * trained * _trials(suite)
    race = suite.race
    timings = len(race.passes) * len(race.lengths) * len(race.units) if race else 0
    if race and race.rough is not None:
        timings += len(race.passes) * sum(n <= ROUGH for n in race.lengths) * len(race.units)
    if isinstance(progress, Progress):
        yield _Display(progress, trials + timings, suite.name)
    elif progress:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bars:
            yield _Display(bars, trials + timings, suite.name)
    else:
        yield _Display(None, 0, suite.name)
