"""`regard arena` on the command line: which suite or finding, and what of it is replaced."""

import dataclasses
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from regard.cli.bench import LEDGER, PAGE
from regard.cli.names import choice, own, task
from regard.cli.printing import print_json
from regard.core import OptionError
from regard.core.options import Above0, CheckedOptions, Seed

if TYPE_CHECKING:
    from regard.lab.arena.suite import Contest, Suite
    from regard.lab.findings import Finding

Json = Annotated[FlagCreatePairsOff[bool], arg(help="print data instead of a table")]


@dataclass(frozen=True)
class Arena(metaclass=CheckedOptions):
    """Train and time all mechanisms of a suite, or what a finding compares; what the ledger has already is not run again.

    Started several times at once on one ledger, the processes share the work. Mixers, tasks and suites of your own are
    written module:Class (a suite or finding: module:NAME). Of a finding, --seeds, --tokens and --hours are replaced alone.
    """

    suite: Positional[str] = "quick"
    mixers: tuple[str, ...] = ()
    """these in the place of the suite's"""
    task: str | None = None
    """this in the place of the suite's tasks"""
    task_options: tuple[str, ...] = ()
    """NAME=VALUE of the task"""
    lengths: tuple[int, ...] = ()
    """tokens at which speed is measured"""
    dim: int | None = None
    """width of the models that are trained and of the layers that are timed"""
    seeds: tuple[Seed, ...] = ()
    rates: tuple[Above0, ...] = ()
    """learning rates, each tried from the first seed; the best on validation serves the other seeds"""
    tokens: int | None = None
    """of training, for each model"""
    hours: Above0 | None = None
    """nothing new is begun after so many, and what is running ends first; the same command goes on later"""
    on: Literal["here", "ray"] = "here"
    """ray: training as tasks of the cluster of RAY_ADDRESS, or of one started here; timings stay here"""
    ledger: Path = LEDGER
    page: Path = PAGE
    """drawn anew as results come"""
    folder: Path = Path("runs/arena/trials")
    """where unfinished training is kept, so that a killed run goes on"""
    json: Json = False

    def run(self) -> int:
        from regard.lab.arena.ledger import Ledger
        from regard.lab.arena.report import write_page
        from regard.lab.arena.run import run_suite
        from regard.lab.data.files import check_writable

        chosen = suite_or_finding(self.suite)
        if not hasattr(chosen, "race"):
            return self._finding(chosen)
        suite = self._suite(chosen)
        check_writable(self.page)
        with Ledger(self.ledger) as ledger:
            draw = lambda: write_page(ledger.results(), self.page)  # noqa: E731
            try:
                outcome = run_suite(
                    suite,
                    ledger,
                    self.folder,
                    progress=not self.json,
                    hours=self.hours,
                    redraw=draw,
                    on_ray=self.on == "ray",
                )
            finally:
                if ledger.results():  # also where it was stopped
                    draw()
        if self.json:
            print_json(asdict(outcome) | {"ledger": str(self.ledger)})
        else:
            print(
                f"{outcome.suite}: {outcome.new} new results, {outcome.found} already there, "
                f"{outcome.seconds:.0f} s. They are in {self.ledger}, drawn in {self.page}."
            )
            if outcome.left:
                print(f"{outcome.left} not begun in time: the same command goes on.")
        return 0

    def _finding(self, finding: "Finding") -> int:
        from regard.lab.arena.ledger import Ledger
        from regard.lab.findings import run_finding

        for name in ("mixers", "task", "task_options", "lengths", "dim", "rates"):
            if getattr(self, name):
                raise OptionError(
                    f"--{name.replace('_', '-')} is of a suite, and {finding.name} is a finding with entries of its own: "
                    "--seeds, --tokens and --hours may be given"
                )
        with Ledger(self.ledger) as ledger:
            tally = run_finding(
                finding,
                ledger,
                self.folder,
                seeds=self.seeds,
                tokens=self.tokens,
                hours=self.hours,
                progress=not self.json,
            )
        if self.json:
            print_json(asdict(tally) | {"ledger": str(self.ledger)})
        else:
            left = f", {tally.left} not begun within {self.hours:g} hours" if tally.left else ""
            print(
                f"{tally.finding}: {tally.new} new results, {tally.found} already there{left}, {tally.seconds:.0f} s. "
                f"`regard report --finding {self.suite}` draws the page."
            )
        return 0

    def _suite(self, suite: "Suite") -> "Suite":
        from regard.cli.arguments import option
        from regard.lab.arena.suite import Race, brief, contests as contests_of

        if self.mixers:
            listed = {choice.name: choice for choice in suite.choices}
            named = [choice(name) for name in self.mixers]
            suite = dataclasses.replace(
                suite, trained=(), mixers=tuple(listed.get(one.name, one) for one in named)
            )
        contests = suite.contests
        if self.task is not None:
            own = task(self.task, dict(map(option, self.task_options)))
            train = brief(tokens=500_000, batch_size=32, eval_every=50)
            contests = contests_of(own, train)
        elif self.task_options:
            raise OptionError("task_options are of the task that --task names: name it")
        if self.tokens is not None:
            contests = tuple(_with(contest, "train", tokens=self.tokens) for contest in contests)
        race = suite.race
        if self.dim is not None:
            contests = tuple(_with(contest, "size", dim=self.dim) for contest in contests)
            race = race and dataclasses.replace(race, dim=self.dim)
        if self.lengths:
            race = dataclasses.replace(race or Race(lengths=()), lengths=self.lengths)
        return dataclasses.replace(
            suite,
            contests=contests,
            race=race,
            seeds=self.seeds or suite.seeds,
            rates=self.rates or suite.rates,
        )


def suite_or_finding(name: str) -> Any:
    """The suite of this name, or the Suite or Finding of module:NAME. Raises UnknownNameError, OptionError."""
    from regard.cli.describe import catalog

    if ":" in name:
        return own(name, ("suites", "findings"))[1]
    return catalog("suites")[name]


def _with(contest: "Contest", part: str, **changes: int) -> "Contest":
    changed = dataclasses.replace(getattr(contest, part), **changes)
    return dataclasses.replace(contest, **{part: changed})
