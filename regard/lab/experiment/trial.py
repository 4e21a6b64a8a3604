"""Trial: one entry trained in one column from one seed at one rate, under the budget that all others get.

Its model is the task's own, around the mechanism, and as large as the baseline's where sizes are matched.
"""

import math
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from accelerate.utils import send_to_device
from torch import nn

from regard.core import OptionError, PathError, RegardError, StoredDataError
from regard.lab.data.source import code, held
from regard.lab.experiment.entry import Entry, commit, leaves, sources
from regard.lab.experiment.provenance import provenance, versions
from regard.lab.experiment.question import Column, Fitted, Measures
from regard.lab.experiment.row import Facts, Row, as_json
from regard.lab.tasks import Splits
from regard.lab.train import DivergedError, Run, TrainConfig, fit, train
from regard.lab.train.batches import Batches, in_order
from regard.lab.train.checkpoint import take_weights
from regard.lab.train.models import FeaturesConfig
from regard.lab.train.optimizer import make_optimizer
from regard.lab.train.resume import MAY_DIFFER
from regard.lab.train.short import Short, short_fit
from regard.lab.train.terms import Terms, has_own_loss
from regard.mixers.build import resolve
from regard.models import (
    ClassifierConfig,
    DualEncoderConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    ModelConfig,
    StackConfig,
    TransformerConfig,
    count_parameters,
    match_parameters,
)
from regard.testing.counting import count

_LONG = (fit, Batches, make_optimizer, Terms)
_SHORT = (short_fit, make_optimizer, Terms)
"""What trains: a change of these files makes results old, as one of a mechanism's does."""


class Cell(NamedTuple):
    """One entry in one column: a trial without its seed and rate."""

    entry: Entry
    column: Column
    id: str  # Row.cell
    reason: str | None = None  # why it cannot be run


def content(
    column: Column,
    entry: Entry,
    splits: Splits | None,
    base: Entry | None,
    measures: Measures | None,
) -> Facts:
    """Everything that determines the result but seed, rate and data. Raises OptionError where there is no such model."""
    task = column.task
    about = versions()
    plain = {name: value for name, value in asdict(task).items() if not isinstance(value, Path)}
    told = {
        "task": {"name": task.name, "place": column.place, "options": plain},
        "shell": column.shell,
        "model": {},
        "entry": entry.identity(),
        "train": {k: v for k, v in asdict(column.train).items() if k not in {"seed", *MAY_DIFFER}},
        "trained by": code(*(_SHORT if isinstance(column.train, Short) else _LONG)),
        "torch": about["torch"].partition("+")[0],
        "regard": about["regard"],
        "measures": held(measures),
    } | sources(type(task), column, measures)
    if splits:
        if len(plain) < len(asdict(task)) or not type(task).__module__.startswith("regard."):
            told["data"] = splits.sha256  # a path does not say what it holds, nor one's own task
        config = model_config(column, entry, splits, beside=base)
        told["model"] = {"name": config.name} | {  # a new field leaves old keys as they are
            one.name: value
            for one in fields(config)
            if (entry.make or not one.name.endswith("mixer"))
            and (value := getattr(config, one.name)) != one.default
        }
        if entry.mixer:
            named = {resolve(of) for name, of in leaves(config) if name.endswith("mixer")}
            if beside := named - {entry.written}:
                told["beside"] = sources(*beside)
    if entry.before:
        data = Splits.of(entry.before.task)
        before = content(entry.before, replace(entry, before=None), data, base, None)
        told["before"] = before | {"data": data.sha256}
    return as_json(told)


def as_run(
    column: Column, entry: Entry, seed: int, rate: float | None, splits: Splits, base: Entry | None
) -> Run:
    """The trial as a run of its own, with a folder and checkpoints."""
    model = model_config(column, entry, splits, beside=base)
    train = _training(column.train, entry, seed, rate)
    return Run(task=column.task, model=model, train=train, seed=seed)


def _training(
    train: TrainConfig | Short, entry: Entry, seed: int, rate: float | None
) -> TrainConfig:
    """A mixer's own loss is added, of weight 1 where the column names none: without it an index stays as it was drawn."""
    config = train.as_config() if isinstance(train, Short) else train
    if config.auxiliary is None and entry.mixer and has_own_loss(resolve(entry.mixer)):
        config = replace(config, auxiliary=1.0)
    return replace(config, seed=seed, lr=rate or config.lr)


def run(
    splits: Splits,
    *,
    cell: Cell,
    seed: int,
    rate: float | None,
    base: Entry | None,
    question: str,
    measures: Measures | None,
    folder: Path | None,
    device: str,
) -> Row:
    """The result, or where it is refused or diverges the reason. A run that was killed goes on from its newest checkpoint in `folder`.

    folder: None on a machine of a cluster: a temporary one there, and any exception is a reason, so that other trials go on.
    """
    column = cell.column
    entry = cell.entry
    task = column.task
    bf16 = getattr(column.train, "precision", "no") == "bf16"
    row = Row(
        kind="trained", question=question, column=column.name, cell=cell.id, **entry.facts,
        seed=seed, rate=rate, causal=column.causal, metric=task.metric, better=task.better, data=splits.sha256, chance=task.chance(splits),
        provenance=provenance(device=device, dtype="bfloat16" if bf16 else "float32", of=commit(measures, entry.holds, column.holds)),
    )  # fmt: skip
    try:
        with nullcontext(folder) if folder else TemporaryDirectory() as place:
            torch.manual_seed(seed)
            model = model_config(column, entry, splits, beside=base).build()
            batch = task.collate([splits.train[0]])
            with torch.no_grad():
                flops = count(lambda: task.loss(model.eval(), batch)).flops
            if entry.before:
                before = Splits.of(entry.before.task)
                start = Path(place) / "before"
                first = as_run(entry.before, replace(entry, before=None), seed, None, before, base)
                train(first, start, splits=before, wait=True, progress=False)
                take_weights(model, start)
            result, scores, tokens = _fitted(model, cell, splits, seed, rate, Path(place), device)
            more = measures(Fitted(entry, column, model, splits, result)) if measures else {}
            values = {name: float(value) for name, value in more.items()}
            numbers = [result.value, result.valid_value, *values.values()]
            if not all(map(math.isfinite, numbers)):
                raise DivergedError(f"{task.name}: its results are {', '.join(map(str, numbers))}")
    except Exception as error:
        passing = isinstance(error, PathError | StoredDataError)  # of the disk, and no result
        if folder and (passing or not isinstance(error, RegardError)):
            raise
        said = str(error) if isinstance(error, RegardError) else f"failed: {error!r}"
        return replace(row, reason=said)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return replace(
        row, value=result.value, valid_value=result.valid_value, scores=scores, parameters=parameters, flops=flops, values=values,
        steps=result.steps, tokens=tokens, seconds=result.seconds, curve=result.curve,
    )  # fmt: skip


def _fitted(
    model: nn.Module,
    cell: Cell,
    splits: Splits,
    seed: int,
    rate: float | None,
    folder: Path,
    device: str,
) -> tuple[Any, list[float], int]:
    """The result, the scores of test items, and the tokens seen."""
    task = cell.column.task
    train = cell.column.train
    if isinstance(train, Short):
        short = short_fit(
            model, splits, train, lr=rate or train.lr, seed=seed, name=task.name, device=device
        )
        scores = short.correct if task.has_scores else []
        return short, scores, short.steps * train.batch_size * task.max_len
    config = replace(_training(train, cell.entry, seed, rate), log_dir=None)
    result = fit(model, task, config, folder, splits=splits, wait=True, progress=False)
    if not task.has_scores:
        return result, [], result.tokens
    on = next(model.parameters()).device
    batches = in_order(splits.test, train.batch_size, task.collate)
    moved = (send_to_device(batch, on) for batch in batches)
    half = train.precision == "bf16"  # as `fit` scores
    with torch.autocast(on.type, torch.bfloat16, enabled=half):
        return result, task.item_scores(model, moved), result.tokens


EQUAL = 0.02
"""Share by which the parameters of entries of a comparison may differ."""
_CONFIGS = {
    kind: config
    for config in (
        ClassifierConfig,
        LanguageModelConfig,
        MaskedLanguageModelConfig,
        DualEncoderConfig,
        TransformerConfig,
        FeaturesConfig,
    )
    for kind in config.kinds
}
_PLACES = {
    "encoder": ["bidirectional", "padding"],
    "decoder": ["causal", "padding"],
    "cross": ["cross", "bidirectional", "padding", "streaming"],
}


def obstacle(column: Column, entry: Entry, splits: Splits) -> str | None:
    """Why this mechanism cannot be trained in this column, or None."""
    if not entry.mixer:
        return None
    shell = column.shell
    task = column.task
    if task.kind not in _CONFIGS:
        return f"{task.name} is of kind {task.kind}, and a mechanism is trained in {', '.join(_CONFIGS)}"
    sketch = entry.sketch(dim=shell.dim, num_heads=shell.num_heads, max_len=task.max_len)
    return entry.refusal(sketch, *needs(column, splits))


def needs(column: Column, splits: Splits) -> list[str]:
    """The capabilities that this task needs of a mixer, in its place."""
    if column.task.kind == "translate":
        generates = column.place == "decoder" and not column.task.metric.startswith("bits")
        return _PLACES[column.place] + ["streaming"] * generates
    direction = "causal" if column.causal else "bidirectional"
    parts = (splits.train, splits.valid, splits.test)
    equal = all(len(part.lengths.unique()) == 1 for part in parts)
    return [direction] if equal else [direction, "padding"]


def model_config(
    column: Column, entry: Entry, splits: Splits | None = None, *, beside: Entry | None = None
) -> ModelConfig:
    """The column's model around this entry, `splits` where facts are read off the data.

    beside: the entry whose number of parameters it is given, by the width of the feed-forward layer, as nearly as widths of one
    allow. Raises OptionError where no width does.
    """
    config = _config(column, entry, splits)
    sized = "hidden_dim" in {**entry.options, **entry.model}
    if not beside or entry == beside or sized or not isinstance(config, StackConfig):
        return config
    return match_parameters(
        config, count_parameters(_config(column, beside, splits)), tolerance=EQUAL, step=1
    )


def _config(column: Column, entry: Entry, splits: Splits | None) -> Any:
    task = column.task
    facts = splits.facts if splits else {}
    if entry.make:
        made = entry.made(column)
        if task.kind not in made.kinds:
            raise OptionError(
                f"{entry.label} makes {made.name}, which serves {', '.join(made.kinds)}; {task.name} is of kind {task.kind}"
            )
        return replace(made, **facts)
    prefix = "" if column.place == "encoder" else f"{column.place}_"
    given = {"max_len": task.max_len, **vars(column.shell)}
    more = {**given.pop("fields"), **entry.model}
    compared = {f"{prefix}mixer": entry.mixer, f"{prefix}mixer_options": dict(entry.options)}
    fixed = {**compared, **task.facts, **facts}
    if wrong := more.keys() & {*fixed, *["mixers"] * (not prefix)}:
        raise OptionError(
            f"{entry.label} in {column.name}: {min(wrong)} is told by the entry or the task: leave it out of the shell's fields and of model"
        )
    given |= more | fixed
    kind = column.model or _CONFIGS[task.kind]
    if kind is FeaturesConfig:
        given["max_len"] = max(1, len(given.get("fields", ())))
    if column.model:  # what else the task says and the model asks
        known = {one.name for one in fields(kind)} - given.keys()
        given |= {name: getattr(task, name) for name in known if hasattr(task, name)}
    return kind(**given)
