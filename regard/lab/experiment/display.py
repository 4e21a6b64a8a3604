"""What a person sees while a question is run: one bar of the whole, and each result in a line above it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from regard.core import visible
from regard.lab.experiment.row import Row


def told(row: Row) -> str:
    """The row in a line, as it is shown when it comes."""
    if row.kind == "laws":
        kept = f"{row.mixer} keeps all laws ({row.seconds:.0f} s)"
        return kept if row.reason is None else f"{row.mixer} breaks a law. {row.reason}"
    if row.reason is not None:
        return f"{row.column}: {row.entry} not run. {row.reason}"
    if row.kind == "timed":
        return f"{row.column}: {row.entry} {row.values['ms']:.3g} ms, {row.ratio:.2f} of softmax"
    at = f", rate {row.rate:g}" if row.rate else ""
    return f"{row.column}: {row.entry} {row.metric} {row.value:.3f}, seed {row.seed}{at} ({row.seconds:.0f} s)"


@dataclass
class Display:
    """A bar of the whole, with time spent and left; what came last is the line above it."""

    bars: Any
    task: Any
    total: int = 0
    moved: set[str] = field(default_factory=set)
    begun: bool = False  # something is done here, not found

    def plan(self, total: int, seconds: float = inf) -> None:
        """seconds: after which nothing new is begun."""
        if total > self.total:
            self.total = total
            self.bars.update(self.task, total=total)
        if seconds < inf:
            end = time.strftime("%H:%M", time.localtime(time.time() + seconds))
            self.bars.update(self.task, end=f"until {end}")

    def doing(self, what: str) -> None:
        if not self.begun:  # what was found says nothing of the time that is left
            self.bars.reset(self.task, completed=len(self.moved))
        self.bars.update(self.task, description=visible(what))
        self.begun = True

    def done(self, key: str) -> None:
        """Move the bar, once for each job: it was found or kept."""
        if key not in self.moved:
            self.moved.add(key)
            self.bars.advance(self.task)

    def say(self, row: Row) -> None:
        self.bars.console.print(visible(told(row)), highlight=False, markup=False)


@contextmanager
def displayed(progress: bool) -> Iterator[Display]:
    whole = Column(no_wrap=True)
    what = Column(no_wrap=True, overflow="ellipsis", ratio=1)  # gives way in a narrow terminal
    with Progress(
        TextColumn("{task.description}", markup=False, table_column=what),
        BarColumn(10, table_column=whole),
        MofNCompleteColumn(table_column=whole),
        TimeElapsedColumn(table_column=whole),
        TextColumn("left"),
        TimeRemainingColumn(table_column=whole),
        TextColumn("{task.fields[end]}"),
        console=Console(stderr=True, quiet=not progress),
        expand=True,
        speed_estimate_period=inf,
        disable=not progress,
    ) as bars:
        yield Display(bars, bars.add_task("", total=None, end=""))
