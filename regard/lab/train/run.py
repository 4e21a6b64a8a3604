"""Run: the whole configuration of one training run, and the function that starts it."""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import nn

from regard.core import Declared, OptionError, Options, RegardError, checked, shown, tuples
from regard.core.files import check_writable, text_sha256
from regard.core.memory import require_memory
from regard.functional.patterns import Pattern
from regard.functional.rows import Form
from regard.lab.data.source import held, own_code
from regard.lab.tasks.task import DataSeed, Splits, Task
from regard.lab.train import models  # noqa: F401  `from_json` finds their configurations
from regard.lab.train.checkpoint import State, newest, take_weights
from regard.lab.train.config import TrainConfig
from regard.lab.train.launched import is_main
from regard.lab.train.loop import FitResult, fit
from regard.models import ModelConfig, count_parameters
from regard.nn.fields import Categorical, Field, Numeric, Sequence as FieldSequence

BYTES = 16
"""For each trained number in float32: itself, its gradient, and the two means that AdamW keeps."""


class Run(Declared):
    """Raises OptionError where task and model do not fit each other."""

    task: Task
    model: ModelConfig
    train: TrainConfig
    seed: DataSeed = 0  # of the initial weights
    start_from: Path | None = None  # folder of a run whose best weights are taken where they fit

    def __post_init__(self):
        task = self.task
        model = self.model
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
        if max_len and max_len < task.max_len:
            raise OptionError(
                f"model.max_len ({max_len}) is below the longest sequence of {task.name} ({task.max_len}). Raise model.max_len, or shorten the task."
            )


@checked
def start(
    run: Run,
    run_dir: str | Path,
    *,
    splits: Splits | None = None,
    wait: bool = False,
    progress: bool = True,
) -> FitResult:
    """`train`, without its model."""
    return train(run, run_dir, splits=splits, wait=wait, progress=progress)[1]


@checked
def train(
    run: Run,
    run_dir: str | Path,
    *,
    splits: Splits | None = None,
    wait: bool = False,
    progress: bool = True,
    report_to: Sequence[str] = (),
) -> tuple[nn.Module, FitResult]:
    """Build the model from the run's seed and train it; a run that was killed goes on from `run_dir`.

    Returns the model with its best weights, and what it came to.

    A folder that holds a run of another model, seed or start is refused, and so is one that cannot be written, or in which
    another process trains; `wait` waits for that process.

    `splits` saves loading the task's again. report_to: as in `fit`. Raises OptionError for an argument of another type, and what `fit` raises.
    """
    check_writable(Path(run_dir), folder=True)
    splits = splits or Splits.of(run.task)
    model = _filled(run.model, splits.facts)
    _check_memory(model)
    torch.manual_seed(run.seed)
    built = model.build()
    origin: State = {"seed": run.seed, "start_from": None, "model": as_json(model)}
    if run.start_from:
        taken = take_weights(built, run.start_from)
        origin["start_from"] = taken.sha256
        if progress and is_main():
            print(f"from {run.start_from}: {taken}", file=sys.stderr)
    return built, fit(
        built, run.task, run.train, run_dir,
        splits=splits, wait=wait, progress=progress, origin=origin, report_to=report_to,
    )  # fmt: skip


@checked
def load(run_dir: str | Path, run: Run | None = None, *, splits: Splits | None = None) -> nn.Module:
    """The model of the run in this folder, with its best weights, in evaluation mode.

    Its configuration is read from the folder. One that holds classes or functions of your own is not there: pass the `run`, and
    `splits` to save loading the task's again. Raises OptionError where there is no run or its configuration cannot be read
    back, StoredDataError where a checkpoint is damaged.
    """
    _, found = newest(run_dir, "load")
    stored = found.state.get("run", {}).get("model")
    if run:
        config = _filled(run.model, (splits or Splits.of(run.task)).facts)
        ours = as_json(config)
        for name in ours.keys() & (stored or {}).keys():
            if _without_code(ours[name]) != _without_code(stored[name]):
                raise OptionError(
                    f"load: {name} is {shown(stored[name])} in {run_dir}, and {shown(ours[name])} in the Run. Pass the Run that made it."
                )
        model = config.build()
    else:
        try:
            read = from_json(stored)
            if not read:
                raise OptionError("it holds what JSON does not")
            model = read.build()
        except RegardError as error:  # a function of one's own
            raise OptionError(
                f"load: the configuration in {run_dir} cannot be read back: {error}. Pass the Run: load(folder, run)."
            ) from None
    if left := take_weights(model, run_dir, who="load").left:
        raise OptionError(
            f"load: the run in {run_dir} has no {left[0]}. Pass the Run that made it."
        )
    return model.eval()


def from_json(told: Any) -> ModelConfig | None:
    """The configuration that `as_json` told; None for anything else, and for one that holds classes or functions of one's own."""
    classes = {cls.name: cls for cls in _below(ModelConfig) if "name" in vars(cls)}
    with suppress(LookupError, TypeError, AttributeError, RegardError):
        cls = classes[told["name"]]
        known = {one.name for one in fields(cls) if one.init}
        given = {name: tuples(told[name]) for name in known & told.keys()}
        if "fields" in given:  # of a table
            given["fields"] = tuple(map(_field, given["fields"]))
        config = cls(**given)
        if told.items() <= as_json(config).items():  # fields of later versions are at their default
            return config
    return None


def _below(cls: Any) -> list[type[ModelConfig]]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_below(sub))]


def _field(told: Options) -> Field:
    """The field that this was."""
    if "of" in told:
        return FieldSequence(told["name"], Categorical(**told["of"]))
    return Categorical(**told) if "size" in told else Numeric(**told)


def as_json(model: ModelConfig) -> State:
    """All fields as JSON values; a class or a function by its name, one of your own with its module and a checksum of its code."""
    return json.loads(json.dumps({"name": model.name} | _fields(model), default=_named))


def _fields(one: Any) -> State:
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _named(one: Any) -> Any:
    if isinstance(one, partial):
        return [one.func, one.args, one.keywords]
    if is_dataclass(one) and not isinstance(one, type | Pattern | Form):
        return _fields(one)
    if callable(one) and not hasattr(one, "__qualname__"):
        one = type(one)
    name, module = getattr(one, "__qualname__", str(one)), getattr(one, "__module__", "")
    if not isinstance(one, type | FunctionType) or module.startswith("regard."):
        return name
    told = json.dumps([own_code(one), held(one)], default=_named)
    return f"{module}:{name} {text_sha256(told)[:16]}"


def _without_code(told: Any) -> str:
    """What `as_json` told, without the checksums of code, which may have been edited since."""
    return re.sub(r" [0-9a-f]{16}\b", "", json.dumps(told))


def _check_memory(config: ModelConfig) -> None:
    """Raises OptionError for a model whose weights, gradients and AdamW means alone are larger than the free memory."""
    count = 0
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    with suppress(RuntimeError):  # too large to count: building it is refused
        count = count_parameters(config)
    what = f"training {count:,} numbers (weights, gradients and AdamW's two means)"
    require_memory(config.name, what, BYTES * count, device, "Choose a smaller model.")


def _filled(model: ModelConfig, facts: Options) -> ModelConfig:
    """The configuration with the facts that are read off the data. OptionError where the two differ; no field and one class say nothing."""
    for name, fact in facts.items():
        if not hasattr(model, name):
            raise OptionError(f"{model.name} has no {name}, which the data have: {fact}")
        if getattr(model, name) not in ((), None, 1, fact):
            raise OptionError(
                f"model.{name} is {getattr(model, name)}, and the data have {fact}. Leave it out, or name what they have."
            )
    return replace(model, **facts)
