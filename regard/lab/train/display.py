"""Display of a run: a progress bar in the terminal, curves in TensorBoard and in trackers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from accelerate.tracking import GeneralTracker
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from regard.core import OptionError
from regard.lab.data.files import reported


class Bar:
    def __init__(self, progress: Progress, task: TaskID, name: str):
        self.progress, self.task, self.name = progress, task, name

    def show(self, step: int, loss: float, score: float | None, rate: float) -> None:
        """rate: tokens a second."""
        text = f"{self.name}  loss {loss:.4f}" + ("" if score is None else f"  valid {score:.4f}")
        text += f"  {rate:,.0f} tokens/s"
        self.progress.update(self.task, completed=step, description=text)


@contextmanager
def bar_of(progress: bool | Progress, name: str, steps: int, done: int) -> Iterator[Bar]:
    """A bar of our own, or a line in the Progress that the caller is drawing."""
    drawing: AbstractContextManager[object]
    if isinstance(progress, Progress):
        display, drawing = progress, nullcontext()
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        display = drawing = Progress(*columns, disable=not progress)
    with drawing:
        task = display.add_task(name, total=steps, completed=done)
        try:
            yield Bar(display, task, name)
        finally:
            if display is progress:
                display.remove_task(task)


class Log:
    def __init__(self, report: Callable[..., None], writer: Any | None, folder: Path = Path()):
        self.report, self.writer, self.folder = report, writer, folder

    def add(self, step: int, values: dict[str, float]) -> None:
        self.report(values, step=step)
        if self.writer is not None:
            with reported(self.folder):
                for name, value in values.items():
                    self.writer.add_scalar(name, value, step)


@contextmanager
def log_to(
    folder: Path | None, done: int, report: Callable[..., None] = lambda values, step: None
) -> Iterator[Log]:
    """TensorBoard files in `folder`; what an earlier run wrote there after step `done` is dropped. Raises PathError.

    report: takes the same values, and the step.
    """
    if folder is None:
        yield Log(report, None)
        return
    from torch.utils.tensorboard import SummaryWriter

    with reported(folder):
        writer = SummaryWriter(str(folder), purge_step=done + 1)
    try:
        yield Log(report, writer, folder)
    finally:
        with reported(folder):
            writer.close()


Tracker: TypeAlias = str | GeneralTracker
TRACKERS = ("wandb", "mlflow")


def check_trackers(trackers: Sequence[Tracker]) -> None:
    """Raises OptionError for a tracker that is not known or not installed: Accelerate would leave it out silently."""
    for name in (one for one in trackers if isinstance(one, str)):
        if name not in TRACKERS:
            raise OptionError(
                f"report_to must name {' or '.join(TRACKERS)}, or be a tracker of Accelerate, got {name!r}"
            )
        if find_spec(name) is None:
            raise OptionError(
                f"report_to cannot use {name}: it is not installed. Install it: pip install {name}"
            )
