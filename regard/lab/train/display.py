"""Display of a run: a progress bar in the terminal, curves in TensorBoard and in trackers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
    report: Callable[..., None] | None = None  # of trackers

    def __init__(self, writer: Any | None, folder: Path = Path()):
        self.writer, self.folder = writer, folder

    def add(self, step: int, values: dict[str, float]) -> None:
        if self.report is not None:
            self.report(values, step=step)
        if self.writer is not None:
            with reported(self.folder):
                for name, value in values.items():
                    self.writer.add_scalar(name, value, step)


@contextmanager
def log_to(folder: Path | None, done: int) -> Iterator[Log]:
    """TensorBoard files in `folder`; what an earlier run wrote there after step `done` is dropped. Raises PathError."""
    if folder is None:
        yield Log(None)
        return
    from torch.utils.tensorboard import SummaryWriter

    with reported(folder):
        writer = SummaryWriter(str(folder), purge_step=done + 1)
    try:
        yield Log(writer, folder)
    finally:
        with reported(folder):
            writer.close()


def check_trackers(names: Sequence[str]) -> None:
    """Raises OptionError for a tracker that is not known or not installed: Accelerate would leave it out silently."""
    for name in names:
        if name not in ("wandb", "mlflow") or find_spec(name) is None:
            raise OptionError(
                f"report_to cannot use {name}: it is not installed, or neither wandb nor mlflow. Install it with pip."
            )
