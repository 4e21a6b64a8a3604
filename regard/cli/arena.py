"""`regard arena` on the command line: which question, and what of it is replaced."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from tyro.conf import Positional

from regard.cli.arguments import Flag, Json, Length, Words, given_options
from regard.cli.bench import LEDGER, PAGE, check_outputs
from regard.cli.names import choice, entry
from regard.cli.printing import print_json
from regard.core import Above0, Declared, OptionError, Seed

if TYPE_CHECKING:
    from regard.lab import Column, Question

_PART = "REGARD_PART_OF"
"""Set in the processes that `--workers` starts: they print nothing and draw nothing."""
_LIMIT = "One width and one budget: a cell says what was reached within so many tokens, never what cannot be. Parameters are printed, not matched."


def _end_with_the_first() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock a blocked reader would hold at exit
    os.kill(os.getpid(), signal.SIGTERM)


class Arena(Declared):
    """Ask a question: train and time its entries. What the ledger has already is not run again, and each result is kept as it comes.

    Started several times at once on one ledger, the processes share the work. A question, mixers and tasks of your own are
    written module:NAME. A question that breaks a law of an experiment is refused before anything is run.
    """

    question: Positional[str] = "fingerprint"
    """a name of `regard ls questions`, or module:NAME of your own"""
    mixers: Words = ()
    """these in the place of the question's entries"""
    task: str | None = None
    """this in the place of the question's columns, as a screen"""
    task_options: Words = ()
    """NAME=VALUE of the task"""
    lengths: tuple[Length, ...] = ()
    """tokens at which speed is measured"""
    dim: int | None = None
    """width of the models that are trained, other than the fingerprint's own, and of the blocks that are timed"""
    seeds: tuple[Seed, ...] = ()
    rates: tuple[Above0, ...] = ()
    """learning rates"""
    tokens: int | None = None
    """of training, for each model"""
    hours: Above0 | None = None
    """nothing new is begun after so many, and what is running ends first; the same command goes on later"""
    until_told: Flag = False
    """of a comparison: add seeds until each claim is told, or the time is spent"""
    on: Literal["here", "ray"] = "here"
    """ray: training as tasks of the cluster of RAY_ADDRESS, or of one started here; timings stay here"""
    gpus: Above0 | None = None
    """of each trial on Ray; one where this machine has one by default"""
    workers: int | None = None
    """processes of one thread each; as many as there are cores by default"""
    ledger: Path = LEDGER
    page: Path = PAGE
    """drawn anew as results come"""
    rows: Path | None = None
    """a file of committed results (.jsonl): read first, and written as results come"""
    folder: Path = Path("runs/arena/trials")
    """where unfinished training is kept, so that a killed run goes on"""
    json: Json = False

    def run(self) -> None:
        from regard.lab.experiment.ledger import Ledger
        from regard.lab.experiment.run import Outcome, ask
        from regard.lab.report import write_page

        question = self._question()
        part = _PART in os.environ
        if part:
            Thread(target=_end_with_the_first, daemon=True).start()
        else:
            check_outputs([self.ledger], page=self.page, rows=self.rows)
        outcome = Outcome(question=question.name)
        with Ledger(self.ledger) as ledger:
            if self.rows and self.rows.exists():
                ledger.read_rows(self.rows)

            def draw() -> None:
                found = ledger.rows()
                if found and not part:
                    write_page(found, self.page)
                    if self.rows:
                        ledger.write_rows(self.rows, question.name)

            with ExitStack() as workers:
                try:
                    ask(
                        question,
                        ledger,
                        self.folder,
                        progress=not self.json and not part,
                        hours=self.hours,
                        until_told=self.until_told,
                        on_ray=self.on == "ray",
                        gpus=self.gpus,
                        checked=lambda: workers.enter_context(self._others(part)),
                        redraw=draw,
                        outcome=outcome,
                    )
                finally:
                    draw()  # also where it was stopped
        if self.json:
            print_json(asdict(outcome) | {"ledger": self.ledger, "page": self.page})
            return
        print(
            f"{outcome.question}: {outcome.new} new results, {outcome.found} already there, "
            f"{outcome.seconds:.0f} s. They are in {self.ledger}, drawn in {self.page}."
        )
        if outcome.failed:
            print(f"{outcome.failed} of the new ones have no value: the page says why.")
        if outcome.left:
            print(f"{outcome.left} not done: the same command goes on.")

    @contextmanager
    def _others(self, part: bool) -> Iterator[None]:
        """The other processes of `workers`; each computes with one thread, and so does this one."""
        import torch

        from regard.lab.experiment.provenance import cores

        count = self.workers or (cores() if self.on == "here" else 1)
        if part or count == 1 or torch.cuda.is_available():
            yield
            return
        torch.set_num_threads(1)
        others = [
            subprocess.Popen(
                [sys.executable, "-m", "regard", "arena", *self._words()],
                env=os.environ | {_PART: str(os.getpid()), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,  # it ends with this process, and so do they
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(count - 1)
        ]
        try:
            yield
        except BaseException:
            for other in others:
                other.terminate()
            raise
        finally:
            for other in others:
                other.wait()

    def _words(self) -> Iterator[str]:
        """The options as they are typed."""
        yield self.question
        for one in fields(self)[1:]:
            value = getattr(self, one.name)
            if value != one.default:
                given = value if isinstance(value, tuple) else () if value is True else (value,)
                yield f"--{one.name.replace('_', '-')}"
                yield from map(str, given)

    def _question(self) -> "Question":
        from regard.lab import Setting
        from regard.lab.experiment.question import columns
        from regard.lab.train import TrainConfig

        question = entry("questions", self.question)
        changes = {name: given for name in ("seeds", "rates") if (given := getattr(self, name))}
        if self.mixers:
            listed = [
                [e for e in question.entries if e.name == one.name] or [one]
                for one in map(choice, self.mixers)
            ]
            changes["entries"] = tuple(chain.from_iterable(listed))
        timed = question.timed
        trained = question.trained
        if self.task is not None:
            cls = entry("tasks", self.task)
            own = cls(**given_options(self.task_options, get_type_hints(cls)))
            train = TrainConfig(tokens=500_000, lr=2e-3, eval_every=50, checkpoint_every=50, keep=1)
            trained = columns(own, train)
            changes |= {
                "name": trained[-1].name, "about": f"every entry on {self.task}", "kind": "screen",
                "allowed": None, "claims": (), "shells": (), "factors": (), "measures": None, "limits": (_LIMIT,),
            }  # fmt: skip
        elif self.task_options:
            raise OptionError("task_options are of the task that --task names: name it")
        if self.lengths:
            usual = timed or [Setting(kind="forward", length=1, unit="block", seconds=2.0)]
            timed = tuple(
                dict.fromkeys(replace(one, length=n) for n in self.lengths for one in usual)
            )
        if self.dim:
            timed = tuple(replace(one, dim=self.dim) for one in timed)
            shells = () if self.task else question.shells
            changes["shells"] = tuple(replace(one, dim=self.dim) for one in shells)
        return replace(question, vary=(*timed, *map(self._sized, trained)), **changes)

    def _sized(self, column: "Column") -> "Column":
        """The column at the width and the budget that were given."""
        if self.dim and not column.model:
            column = replace(column, shell=replace(column.shell, dim=self.dim))
        if not self.tokens:
            return column
        budget: dict[str, Any] = {"tokens": self.tokens}
        if not column.train.tokens:
            batch = column.train.batch_size * column.task.max_len
            budget = {"steps": max(1, self.tokens // batch)}
        return replace(column, train=replace(column.train, **budget))
