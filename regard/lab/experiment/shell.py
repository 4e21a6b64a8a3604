"""The models of a column: the task's own, around a mechanism, and as large as the baseline's where sizes are matched."""

import dataclasses
from typing import TYPE_CHECKING, Any

from regard.core import OptionError
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.models import DocumentConfig, FeaturesConfig, TwoStreamConfig
from regard.lab.tasks import Splits
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

if TYPE_CHECKING:
    from regard.lab.experiment.question import Column

EQUAL = 0.02
"""Share by which the parameters of entries of a comparison may differ."""
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
_PLACES: dict[str, list[str]] = {
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


def obstacle(column: "Column", entry: Entry, splits: Splits) -> str | None:
    """Why this mechanism cannot be trained in this column, or None."""
    if entry.mixer is None:
        return None
    shell, task = column.shell, column.task
    if task.kind not in _CONFIGS:
        return f"{task.name} is of kind {task.kind}, and a mechanism is trained in {', '.join(_CONFIGS)}"
    sketch = entry.sketch(dim=shell.dim, num_heads=shell.num_heads, max_len=task.max_len)
    reasons = (entry.refusal(sketch, need) for need in needs(column, splits))
    return next((reason for reason in reasons if reason is not None), None)


def needs(column: "Column", splits: Splits) -> list[str]:
    """The capabilities that this task needs of a mixer, in its place."""
    task = column.task
    if task.kind in _NEEDS:
        return _NEEDS[task.kind]
    if task.kind == "translate":
        generates = column.place == "decoder" and not task.metric.startswith("bits")
        return _PLACES[column.place] + ["streaming"] * generates
    direction = "causal" if column.causal else "bidirectional"
    lengths = [part.lengths for part in (splits.train, splits.valid, splits.test)]
    equal = all(int(of.min()) == int(of.max()) for of in lengths)
    return [direction] if equal else [direction, "padding"]


def model_config(
    column: "Column", entry: Entry, splits: Splits | None = None, *, beside: Entry | None = None
) -> ModelConfig:
    """The column's model around this entry, `splits` where facts are read off the data.

    beside: the entry whose number of parameters it is given, by the width of the feed-forward layer, as nearly as widths of one
    allow. Raises OptionError where no width does.
    """
    config = _config(column, entry, splits)
    sized = "hidden_dim" in {**entry.options, **entry.model}
    if beside is None or entry == beside or sized or not isinstance(config, StackConfig):
        return config
    return match_parameters(
        config, count_parameters(_config(column, beside, splits)), tolerance=EQUAL, step=1
    )


def _config(column: "Column", entry: Entry, splits: Splits | None) -> Any:
    task, shell = column.task, column.shell
    facts = {} if splits is None else dict(splits.facts)
    if entry.make is not None:
        made = entry.make(column)
        if task.kind not in made.kinds:
            raise OptionError(
                f"{entry.label} makes {made.name}, which serves {', '.join(made.kinds)}; {task.name} is of kind {task.kind}"
            )
        return dataclasses.replace(made, **facts)  # type: ignore[type-var]
    prefix = "" if column.place == "encoder" else f"{column.place}_"
    given: dict[str, Any] = dict(
        max_len=task.max_len,
        dim=shell.dim,
        num_heads=shell.num_heads,
        num_layers=shell.num_layers,
        position=shell.position,
    )
    given |= {f"{prefix}mixer": entry.mixer, f"{prefix}mixer_options": dict(entry.options)}
    given |= dict(shell.fields) | dict(entry.model) | task.facts | facts
    kind = column.model or _CONFIGS[task.kind]
    if kind is FeaturesConfig:
        given["max_len"] = given.get("input_dim") or max(1, len(given.get("fields", ())))
    if column.model is not None:  # what else the task says and the model asks
        known = {one.name for one in dataclasses.fields(kind)} - given.keys()
        given |= {name: getattr(task, name) for name in known if hasattr(task, name)}
    return kind(**given)
