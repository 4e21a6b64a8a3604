"""`regard arena` on the command line: which suite, and what of it is replaced."""

import dataclasses
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from regard.cli.bench import LEDGER
from regard.cli.names import entry, task
from regard.cli.printing import print_json
from regard.core import OptionError

if TYPE_CHECKING:
    from regard.lab.arena.suite import Contest, Suite

Json = Annotated[FlagCreatePairsOff[bool], arg(help="print data instead of a table")]


@dataclass(frozen=True)
class Arena:
    """Train and time all mechanisms of a suite; what the ledger has already is not run again.

    Started several times at once on one ledger, the processes share the work. Mixers, tasks and suites of your own are
    written module:Class (a suite: module:NAME of a Suite).
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
    seeds: tuple[int, ...] = ()
    tokens: int | None = None
    """of training, for each model"""
    hours: float | None = None
    """nothing new is begun after so many; the same command goes on later"""
    ledger: Path = LEDGER
    folder: Path = Path("runs/arena/trials")
    """where unfinished training is kept, so that a killed run goes on"""
    json: Json = False

    def run(self) -> int:
        from regard.lab.arena.ledger import Ledger
        from regard.lab.arena.run import run_suite

        suite = self._suite()
        with Ledger(self.ledger) as ledger:
            outcome = run_suite(
                suite, ledger, self.folder, progress=not self.json, hours=self.hours
            )
        if self.json:
            print_json(asdict(outcome) | {"ledger": str(self.ledger)})
        else:
            print(
                f"{outcome.suite}: {outcome.new} new results, {outcome.found} already there, "
                f"{outcome.seconds:.0f} s. They are in {self.ledger}; `regard report` draws them."
            )
            if outcome.left:
                print(f"{outcome.left} not begun within {self.hours:g} hours.")
        return 0

    def _suite(self) -> "Suite":
        from regard.cli.arguments import option
        from regard.lab.arena.suite import Contest, Race, brief
        from regard.mixers import MIXERS

        suite = entry("suites", self.suite)
        if self.mixers:
            classes = [entry("mixers", name) for name in self.mixers]
            listed = {choice.name: choice for choice in suite.choices}
            suite = dataclasses.replace(
                suite,
                mixers=tuple(
                    listed.get(cls.name, cls.name) if cls in tuple(MIXERS) else cls
                    for cls in classes
                ),
            )
        contests = suite.contests
        if self.task is not None:
            own = task(self.task, dict(map(option, self.task_options)))
            train = brief(tokens=500_000, batch_size=32, eval_every=50)
            contests = (Contest(task=own, train=train),)
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
            suite, contests=contests, race=race, seeds=self.seeds or suite.seeds
        )


def _with(contest: "Contest", part: str, **changes: int) -> "Contest":
    changed = dataclasses.replace(getattr(contest, part), **changes)
    return dataclasses.replace(contest, **{part: changed})
