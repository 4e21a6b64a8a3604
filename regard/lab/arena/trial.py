"""Trial: one mechanism trained on one task from one seed, under the same budget as all others."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from regard.core import OptionError
from regard.lab.arena.choice import Choice
from regard.lab.arena.models import DocumentConfig, FeaturesConfig, TwoStreamConfig
from regard.lab.arena.provenance import provenance, versions
from regard.lab.arena.results import NotRun, Trained
from regard.lab.arena.source import source
from regard.lab.arena.suite import Contest, Place
from regard.lab.tasks import Splits, Task
from regard.lab.train import DivergedError, fit
from regard.mixers.build import resolve
from regard.models import (
    ClassifierConfig,
    DualEncoderConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    StackConfig,
    TransformerConfig,
    count_parameters,
    match_parameters,
)

_CONFIGS: dict[str, type[StackConfig]] = {
    kind: config
    for config in (
        ClassifierConfig,
        LanguageModelConfig,
        MaskedLanguageModelConfig,
        DualEncoderConfig,
        TransformerConfig,
        TwoStreamConfig,
        DocumentConfig,
        FeaturesConfig,
    )
    for kind in config.kinds
}


def check_kind(task: Task) -> None:
    """OptionError for a task whose model has no place for a mixer."""
    if task.kind not in _CONFIGS:
        raise OptionError(
            f"{task.name} is of kind {task.kind}, and the arena trains {', '.join(_CONFIGS)}."
        )


def obstacle(contest: Contest, choice: Choice, splits: Splits) -> str | None:
    """Why this mechanism cannot be trained on this task at this size, or None."""
    size = contest.size
    sketch = choice.sketch(dim=size.dim, num_heads=size.num_heads, max_len=contest.task.max_len)
    reasons = (choice.refusal(sketch, need) for need in needs(contest, splits))
    return next((reason for reason in reasons if reason is not None), None)


_PLACES: dict[Place, list[str]] = {
    "encoder": ["bidirectional", "padding"],
    "decoder": ["causal", "padding"],
    "cross": ["cross", "bidirectional", "padding", "streaming"],
}
_NEEDS: dict[str, list[str]] = {
    "permutation_language_model": ["cross", "pairwise", "bidirectional"],
    "documents": ["bidirectional", "padding"],
    "table": ["bidirectional"],
    "vectors": ["bidirectional"],
}


def needs(contest: Contest, splits: Splits) -> list[str]:
    """The capabilities that this task needs of a mixer, in its place."""
    task = contest.task
    if task.kind in _NEEDS:
        return _NEEDS[task.kind]
    if task.kind == "translate":
        generates = contest.place == "decoder" and not task.metric.startswith("bits")
        return _PLACES[contest.place] + ["streaming"] * generates
    direction = "causal" if contest.causal else "bidirectional"
    lengths = [part.lengths for part in (splits.train, splits.valid, splits.test)]
    equal = all(int(of.min()) == int(of.max()) for of in lengths)
    return [direction] if equal else [direction, "padding"]


def model_config(contest: Contest, choice: Choice, splits: Splits | None = None) -> StackConfig:
    """The task's model around this mixer, `splits` where facts are read off the data, with as many parameters as the softmax model; OptionError if none has."""
    softmax = _config(contest, Choice(mixer="softmax"), splits)
    if choice == Choice(mixer="softmax"):
        return softmax
    return match_parameters(_config(contest, choice, splits), count_parameters(softmax))


def _config(contest: Contest, choice: Choice, splits: Splits | None) -> StackConfig:
    task, size = contest.task, contest.size
    found = {} if splits is None else dict(splits.facts)
    prefix = "" if contest.place == "encoder" else f"{contest.place}_"
    facts: dict[str, Any] = dict(
        max_len=task.max_len,
        dim=size.dim,
        num_heads=size.num_heads,
        num_layers=size.num_layers,
        position=size.position,
    )
    facts |= {f"{prefix}mixer": choice.mixer, f"{prefix}mixer_options": dict(choice.options)}
    facts |= task.facts | found
    if _CONFIGS[task.kind] is FeaturesConfig:
        facts["max_len"] = facts.get("input_dim") or max(1, len(facts.get("fields", ())))
    return _CONFIGS[task.kind](**facts)


def content(
    contest: Contest, choice: Choice, seed: int, model: StackConfig, data_sha256: str
) -> dict[str, Any]:
    """Everything that determines the result, for its key."""
    about, task = versions(), contest.task
    place = {} if contest.place == "encoder" else {"place": contest.place}
    facts = {
        field.name: _named(getattr(model, field.name))
        for field in dataclasses.fields(model)
        if not (field.metadata.get("unsaid") and getattr(model, field.name) == field.default)
    } | choice.identity()
    return {
        "kind": "trained",
        "task": {"name": task.name} | place | _options(task) | {"source": source(type(task))},
        "data": data_sha256,
        "model": {"name": model.name} | facts,
        "train": dataclasses.asdict(contest.train) | {"seed": seed},
        "torch": about["torch"],
        "regard": about["regard"],
    }


def _named(value: Any) -> Any:
    """A mixer's class by its name; `identity` has its source."""
    return resolve(value).name if isinstance(value, type) else value


def _options(task: Task) -> dict[str, Any]:
    """Without paths: the same data count as the same wherever they are, by their checksum."""
    found = dataclasses.asdict(task)
    return {name: value for name, value in found.items() if not isinstance(value, Path)}


def tried(
    splits: Splits,
    *,
    contest: Contest,
    choice: Choice,
    seed: int,
    model: StackConfig,
    run_dir: Path,
    command: str | None = None,
    progress: bool | Progress = False,
) -> Trained | NotRun:
    """`train`, or where it diverges the reason."""
    try:
        return train(
            contest, choice, seed, model, splits, run_dir, command=command, progress=progress
        )
    except DivergedError as error:
        return NotRun(
            mixer=choice.name,
            source=choice.source,
            subject=contest.title,
            reason=str(error),
            options=dict(choice.options),
        )


def train(
    contest: Contest,
    choice: Choice,
    seed: int,
    model: StackConfig,
    splits: Splits,
    run_dir: Path,
    *,
    command: str | None = None,
    progress: bool | Progress = False,
) -> Trained:
    """A run that was killed goes on from its newest checkpoint in `run_dir`. Raises DivergedError, PathError."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "bfloat16" if contest.train.precision == "bf16" else "float32"
    origin = provenance(device=device, dtype=dtype, command=command)
    torch.manual_seed(seed)
    built = model.build()
    config = dataclasses.replace(contest.train, seed=seed)
    fitted = fit(built, contest.task, config, run_dir, splits=splits, progress=progress, wait=True)
    return Trained(
        task=contest.title,
        task_source=source(type(contest.task)),
        mixer=choice.name,
        source=choice.source,
        seed=seed,
        options=dict(choice.options),
        metric=fitted.metric,
        value=fitted.value,
        better=fitted.better,
        parameters=sum(p.numel() for p in built.parameters() if p.requires_grad),
        steps=fitted.steps,
        tokens=fitted.tokens,
        seconds=fitted.seconds,
        tokens_per_second=fitted.tokens_per_second,
        data_sha256=fitted.data_sha256,
        provenance=origin,
        curve=fitted.curve,
        length=model.max_len,
        rate=config.lr,
        valid_value=fitted.valid_value,
        causal=contest.causal,
    )
