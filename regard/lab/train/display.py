"""Display of a run: a progress bar in the terminal, curves in TensorBoard and in trackers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regard.core import OptionError
from regard.core.files import reported


@contextmanager
def bar_of(progress: bool, name: str, steps: int, done: int) -> Iterator[Callable[..., None]]:
    """Yields what shows a step in a bar."""

    def show(step: int, loss: float, score: float | None, speed: float) -> None:
        valid = "" if score is None else f"  valid {score:.4f}"
        text = f"{name}  loss {loss:.4f}{valid}  {speed:,.0f} tokens/s"
        display.update(task, completed=step, description=text)

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        disable=not progress,
    ) as display:
        task = display.add_task(name, total=steps, completed=done)
        yield show


@contextmanager
def log_to(folder: Path | None, done: int) -> Iterator[Callable[..., None]]:
    """Yields what adds values to TensorBoard files in `folder`, from which all after step `done` is dropped first.

    Raises PathError.
    """
    if not folder:
        yield lambda values, step: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with reported(folder):
        writer = SummaryWriter(folder, purge_step=done + 1)

    def add(values: dict[str, float], step: int) -> None:
        with reported(folder):
            for name, value in values.items():
                writer.add_scalar(name, value, step)

    try:
        yield add
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
