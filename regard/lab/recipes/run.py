"""Run: the whole configuration of one training run, and the function that starts it."""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch

from regard.core import OptionError
from regard.lab.data.checks import check_seed
from regard.lab.data.files import check_writable
from regard.lab.tasks import Splits, Task
from regard.lab.train import FitResult, TrainConfig, fit
from regard.lab.train.memory import check_memory
from regard.lab.train.transfer import take_weights
from regard.models import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Run:
    """Raises OptionError where task and model do not fit each other."""

    task: Task
    model: ModelConfig
    train: TrainConfig
    seed: int = 0  # of the initial weights
    start_from: Path | None = None  # folder of a run whose best weights are taken where they fit

    def __post_init__(self) -> None:
        task, model = self.task, self.model
        check_seed("model", self.seed)
        if task.kind not in model.kinds:
            raise OptionError(
                f"{task.name} is of kind {task.kind}, and {model.name} serves {', '.join(model.kinds)}"
            )
        for name, fact in task.facts.items():
            if getattr(model, name, None) != fact:
                raise OptionError(
                    f"model.{name} is {getattr(model, name, None)}, and {task.name} has {fact}"
                )
        max_len = getattr(model, "max_len", None)
        if max_len is not None and max_len < task.max_len:
            raise OptionError(
                f"model.max_len ({max_len}) is below the longest sequence of {task.name} "
                f"({task.max_len}). Raise model.max_len, or shorten the task."
            )


@dataclass(frozen=True)
class Recipe:
    """A named function that makes a Run."""

    make: Callable[[], Run]

    @property
    def name(self) -> str:
        return self.make.__name__

    def __call__(self) -> Run:
        return self.make()


def start(
    run: Run,
    run_dir: str | Path,
    *,
    splits: Splits | None = None,
    wait: bool = False,
    progress: bool = True,
) -> FitResult:
    """Build the model from the run's seed and train it; a run that was killed goes on from `run_dir`.

    A folder that holds a run of another model, seed or start is refused, and so is one that cannot be written, or in which
    another process trains; `wait` waits for that process.

    `splits` saves loading the task's again.
    """
    check_writable(Path(run_dir), folder=True)
    splits = splits or run.task.load()
    model = _filled(run.model, splits.facts)
    check_memory(model)
    torch.manual_seed(run.seed)
    built = model.build()
    origin: dict[str, Any] = {"seed": run.seed, "start_from": None, "model": _as_json(model)}
    if run.start_from is not None:
        taken = take_weights(built, run.start_from)
        origin["start_from"] = taken.sha256
        if progress:
            print(f"from {run.start_from}: {taken}", file=sys.stderr)
    return fit(
        built,
        run.task,
        run.train,
        run_dir,
        splits=splits,
        wait=wait,
        progress=progress,
        origin=origin,
    )


def _as_json(model: ModelConfig) -> dict[str, Any]:
    """All fields as JSON values; a class or a function by its name."""

    assert is_dataclass(model)
    fields = asdict(model)

    def named(value: Any) -> str:
        return getattr(value, "__qualname__", str(value))

    return json.loads(json.dumps({"name": model.name} | fields, default=named))


def _filled(model: ModelConfig, facts: Mapping[str, Any]) -> ModelConfig:
    """The configuration with the facts that are read off the data. OptionError where the two differ."""
    for name, fact in facts.items():
        if getattr(model, name) not in ((), None, fact):
            raise OptionError(f"model.{name} is {getattr(model, name)}, and the data have {fact}")
    return dataclasses.replace(model, **facts)  # type: ignore[type-var]
