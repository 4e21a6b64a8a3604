"""Trial: one entry trained in one column from one seed at one rate, under the budget that all others get."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core import RegardError
from regard.lab.experiment.entry import Entry, sources
from regard.lab.experiment.provenance import provenance, versions
from regard.lab.experiment.row import Row, as_json
from regard.lab.experiment.shell import model_config
from regard.lab.tasks import Splits
from regard.lab.train import Run, TrainConfig, fit
from regard.lab.train.batches import in_order
from regard.lab.train.loop import DivergedError
from regard.lab.train.short import Short, short_fit
from regard.lab.train.transfer import take_weights
from regard.testing.counting import count

if TYPE_CHECKING:
    from regard.lab.experiment.question import Column, Fitted
    from regard.lab.experiment.run import Cell

Measures = Callable[["Fitted"], Mapping[str, float]]


def content(
    column: "Column",
    entry: Entry,
    splits: Splits | None,
    base: Entry | None,
    measures: Measures | None,
) -> dict[str, Any]:
    """Everything that determines the result but seed, rate and data. Raises OptionError where there is no such model."""
    task, train, about = column.task, dataclasses.asdict(column.train), versions()
    plain = {
        name: value
        for name, value in dataclasses.asdict(task).items()
        if not isinstance(value, Path)
    }
    model = (
        {} if column.model is not None or splits is None else _facts(column, entry, splits, base)
    )
    before = {}
    if entry.before is not None:
        data, first = entry.before.task.load(), dataclasses.replace(entry, before=None)
        told = content(entry.before, first, data, base, None)
        before = {"before": told | {"data": data.sha256}}
    return as_json(
        {
            "task": {"name": task.name, "place": column.place, "options": plain},
            "shell": dataclasses.asdict(column.shell),
            "model": model,
            "entry": entry.identity(),
            "train": {
                name: value
                for name, value in train.items()
                if name not in ("lr", "seed", "log_dir")
            },
            "torch": about["torch"].partition("+")[0],
            "regard": about["regard"],
        }
        | sources(type(task), column.model, measures)
        | before
    )


def _facts(column: "Column", entry: Entry, splits: Splits, base: Entry | None) -> dict[str, Any]:
    """The model's fields; those that say nothing by default are left out, so that a new one leaves old keys as they are."""
    config = model_config(column, entry, splits, beside=base)
    facts = {
        one.name: getattr(config, one.name)
        for one in dataclasses.fields(config)  # type: ignore[arg-type]
        if one.default is dataclasses.MISSING or getattr(config, one.name) != one.default
    }
    return {"name": config.name} | {
        key: value for key, value in facts.items() if not key.endswith("mixer")
    }


def as_run(
    column: "Column",
    entry: Entry,
    seed: int,
    rate: float | None,
    splits: Splits,
    base: Entry | None,
) -> Run:
    """The trial as a run of its own, with a folder and checkpoints."""
    return Run(
        task=column.task,
        model=model_config(column, entry, splits, beside=base),
        train=_config(column.train, seed, rate),
        seed=seed,
    )


def _config(train: TrainConfig | Short, seed: int, rate: float | None) -> TrainConfig:
    config = train.as_config() if isinstance(train, Short) else train
    return dataclasses.replace(config, seed=seed, lr=config.lr if rate is None else rate)


def run(
    splits: Splits,
    *,
    cell: "Cell",
    seed: int,
    rate: float | None,
    base: Entry | None,
    question: str,
    measures: Measures | None,
    folder: Path,
    command: str | None,
    device: str,
) -> Row:
    """The result, or where it is refused or diverges the reason. A run that was killed goes on from its newest checkpoint in `folder`."""
    column, entry, task = cell.column, cell.entry, cell.column.task
    bf16 = getattr(column.train, "precision", "no") == "bf16"
    row = Row(
        kind="trained", question=question, column=column.name, entry=entry.label, cell=cell.id, source=entry.source,
        mixer=entry.name, options=as_json(dict(entry.options)), seed=seed, rate=rate, causal=column.causal, metric=task.metric,
        better=task.better, data=splits.sha256, chance=float(task.trivial_baseline(splits)),
        provenance=provenance(device=device, dtype="bfloat16" if bf16 else "float32", command=command, of=entry.commit),
    )  # fmt: skip
    try:
        found = _trained(splits, cell, seed, rate, base, measures, folder, device)
        numbers = [found["value"], found["valid_value"], *found.get("values", {}).values()]
        if not all(map(math.isfinite, numbers)):
            raise DivergedError(f"{task.name}: its results are {', '.join(map(str, numbers))}")
        return dataclasses.replace(row, **found)
    except RegardError as error:  # it diverged, or was refused at its size
        return dataclasses.replace(row, reason=str(error))


def _trained(
    splits: Splits,
    cell: "Cell",
    seed: int,
    rate: float | None,
    base: Entry | None,
    measures: Measures | None,
    folder: Path,
    device: str,
) -> dict[str, Any]:
    column, entry, task = cell.column, cell.entry, cell.column.task
    torch.manual_seed(seed)
    model = model_config(column, entry, splits, beside=base).build()
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    batch = task.collate([splits.train[0]])
    with torch.no_grad():
        flops = count(lambda: task.loss(model.eval(), batch)).flops
    if entry.before is not None:
        first = dataclasses.replace(entry, before=None)
        begun = folder / "before"
        before = entry.before.task.load()
        torch.manual_seed(seed)
        fit(
            model_config(entry.before, first, before, beside=base).build(),
            entry.before.task,
            _config(entry.before.train, seed, None),
            begun,
            splits=before,
            wait=True,
            progress=False,
        )
        take_weights(model, begun)
    if isinstance(column.train, Short):
        short = short_fit(
            model,
            splits,
            column.train,
            lr=rate or column.train.lr,
            seed=seed,
            name=task.name,
            device=device,
        )
        more = {} if measures is None else measures(_fitted(cell, model, splits, short))
        return {
            "value": short.value, "valid_value": short.valid_value, "scores": list(short.correct), "parameters": parameters,
            "flops": flops, "steps": short.steps, "tokens": short.steps * column.train.batch_size * task.max_len,
            "values": {name: float(value) for name, value in more.items()}, "seconds": short.seconds, "curve": list(short.curve),
        }  # fmt: skip
    config = dataclasses.replace(_config(column.train, seed, rate), log_dir=None)
    result = fit(model, task, config, folder, splits=splits, wait=True, progress=False)
    more = {} if measures is None else measures(_fitted(cell, model, splits, result))
    scores: list[float] = []
    if task.has_scores:
        on = next(model.parameters()).device
        batches = in_order(splits.test, column.train.batch_size, task.collate)
        scores = task.item_scores(
            model, ({k: v.to(on) if hasattr(v, "to") else v for k, v in b.items()} for b in batches)
        )
    return {
        "value": result.value, "valid_value": result.valid_value, "scores": scores, "parameters": parameters, "flops": flops,
        "values": {name: float(value) for name, value in more.items()}, "steps": result.steps, "tokens": result.tokens,
        "seconds": result.seconds, "curve": result.curve,
    }  # fmt: skip


def _fitted(cell: "Cell", model: nn.Module, splits: Splits, result: Any) -> "Fitted":
    from regard.lab.experiment.question import Fitted

    return Fitted(cell.entry, cell.column, model, splits, result)
