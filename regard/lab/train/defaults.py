"""The runs of `regard train TASK` and `regard train TASK/MODEL`: sizes and budgets for one core and a few minutes."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from regard.core import OptionError, checked
from regard.core.annotations import configuration
from regard.lab.tasks import TASKS, PlaceReaderConfig, Task
from regard.lab.train.config import TrainConfig
from regard.lab.train.run import Run
from regard.models import MODELS, ModelConfig, Published
from regard.models.published.stack import CONFIGS

Fields = Mapping[str, Any]


class Default(NamedTuple):
    """A task's defaults, or those of a kind: a model, fields of task and model, and a budget."""

    model: str = ""
    task: Fields = {}
    fields: Fields = {}  # of that model
    train: Fields = {}


_KINDS = {
    "classify": Default("classifier", train={"steps": 1000}),
    "language_model": Default(
        "language_model", train={"steps": 1000, "batch_size": 16, "lr": 2e-3}
    ),
    "masked_language_model": Default(
        "masked_language_model", train={"steps": 500, "batch_size": 16, "lr": 4e-3}
    ),
    "permutation_language_model": Default(
        "xlnet", train={"steps": 600, "batch_size": 16, "lr": 3e-3}
    ),
    "match": Default("dual_encoder", train={"steps": 300, "batch_size": 16, "lr": 2e-3}),
    "documents": Default("han", train={"steps": 400, "lr": 3e-3}),
    "translate": Default("transformer", train={"steps": 1000, "lr": 2e-3, "bucket": 8}),
    "table": Default("autoint", train={"steps": 600, "batch_size": 256, "lr": 3e-3}),
    "vectors": Default(
        "mmoe", train={"steps": 2000, "batch_size": 128, "lr": 5e-3, "weight_decay": 0.0}
    ),
}

_TASKS = {
    "digits": Default(fields={"position": "learned"}, train={"patience": 5}),
    "listops": Default(train={"steps": 2000, "patience": 5}),
    "recall": Default(
        task={"length": 32, "num_pairs": 4, "vocab_size": 32},
        fields={"dim": 64, "num_heads": 2, "position": "learned"},
        train={"steps": 900, "batch_size": 64, "lr": 5e-3, "patience": 4},
    ),
    "fashion_mnist": Default(
        "patch_classifier", {"valid_size": 1000}, {"patch_size": 4}, {"batch_size": 64, "lr": 2e-3}
    ),
    "pathfinder": Default(
        "patch_classifier",
        {"contour_length": 3},
        {
            "patch_size": 4,
            "stem": ((16, 1), (32, 2), (48, 2), (48, 1), (48, 1)),
            "dim": 48,
            "num_layers": 1,
            "hidden_dim": 96,
            "summary": "max",
        },
        {"batch_size": 64, "lr": 3e-3},
    ),
    "stdlib_bytes": Default(train={"steps": 2000, "batch_size": 8}),
    "stdlib_masked": Default(task={"length": 128}),
    "stdlib_permuted": Default(task={"length": 128}),
    "spam": Default(
        task={"length": 256},
        fields={"num_layers": 1},
        train={"steps": 200, "lr": 3e-3, "bucket": 8},
    ),
    "labelled_texts": Default(train={"lr": 2e-3, "bucket": 8}),
    "bible_chapters": Default(task={"length": 256}),
    "translate_de": Default(task={"vocab_size": 2048, "source_len": 32, "target_len": 48}),
    "greek_english": Default(
        task={"reads": "predicted"},
        fields={"mixer": "local", "mixer_options": {"window_size": 1}},
        train={"steps": 1200, "bucket": None},
    ),
    "debian_summary": Default(
        task={"metric": "bits_per_byte", "vocab_size": 2048, "source_len": 64, "valid_size": 500}
    ),
    "dialogue": Default(train={"steps": 300, "batch_size": 16, "bucket": None}),
    "text_files": Default(fields={"num_layers": 2}, train={"steps": 3000}),
    "own_table": Default(train={"batch_size": 64}),
    "planted_histories": Default(
        "din",
        fields={"dim": 8, "hidden_dims": (16,)},
        train={"steps": 1200, "lr": 1e-2, "weight_decay": 0.0},
    ),
    "movielens": Default(
        "din",
        {"history": 30, "targets": 5},
        {"pool_options": {"interaction": "elementwise"}, "hidden_dims": (64, 32)},
        {"steps": 400},
    ),
    "white_pixel": Default("place_reader", train={"steps": 4000, "batch_size": 32, "lr": 3e-3}),
}
"""Task -> what differs from its kind; `fields` are those of its own model alone."""

_MODELS: Mapping[str, Fields] = {
    "language_model": {"dim": 128},
    "dual_encoder": {"num_layers": 1},
    "masked_language_model": {"num_layers": 1},
    "transformer": {"dim": 128, "num_layers": 1},
    "transformer_xl": {"dim": 128, "hidden_dim": 256, "mem_len": 128, "norm_first": True},
    "xlnet": {"num_layers": 1, "hidden_dim": 128},
    "xlnet_classifier": {"hidden_dim": 128},
    "xlnet_matcher": {"hidden_dim": 128},
    "patch_classifier": {"patch_size": 2},
    "han": {"hidden_dim": 32, "attention_dim": 64},
    "autoint": {"dim": 8, "head_dim": 8, "dropout": 0.1},
    "mmoe": {"dim": 16},
    "din": {"dim": 16},
    "factorization_machine": {"dim": 16},
    "cross_network": {"dim": 8, "num_layers": 3, "hidden_dims": (32,)},
    "compressed_interaction": {"dim": 8, "maps": (16, 16), "hidden_dims": (32,)},
}
"""Model -> its fields, beside the common ones."""

_SIZE = {"dim": 64, "num_layers": 2}


@checked
def run_for(name: str) -> Run:
    """The run of "adult" with the model that the task has by default, of "adult/mmoe" with this one.

    Every field may be replaced. Raises UnknownNameError, and OptionError where the model does not serve the task.
    """
    task_name, _, model_name = name.partition("/")
    cls = TASKS[task_name]
    kind = _KINDS[cls.kind]
    own = _TASKS.get(task_name, Default())
    task = cls(**own.task)
    usual = own.model or kind.model
    model = _model(task, model_name or usual, own.fields if model_name in ("", usual) else {})
    return Run(task=task, model=model, train=TrainConfig(**{**kind.train, **own.train}))


def _model(task: Task, name: str, own: Fields) -> ModelConfig:
    if name == PlaceReaderConfig.name:
        return PlaceReaderConfig()
    model = MODELS[name]
    config = configuration(model)
    said = f"{task.name}/{name}: "
    if task.kind not in config.kinds:
        serving = [one for one, of in MODELS.items() if task.kind in configuration(of).kinds]
        raise OptionError(
            f"{said}{task.name} is of kind {task.kind}, and {name} serves {', '.join(config.kinds)}. Models that serve it: {', '.join(serving)}."
        )
    image_size = getattr(task, "image_size", None)
    facts = task.facts
    if task.kind == "classify":  # one class: as many as the data have
        facts = {"num_classes": 1} | facts
    if isinstance(model, Published):
        head = next(head for head in model.heads if task.kind in CONFIGS[head].kinds)
        sizes = {"max_len": task.max_len}
        if head == "patch_classifier":
            if image_size is None:
                raise OptionError(f"{said}{task.name} has no pictures")
            sizes = {"image_size": image_size}
        return model("small", head=head, **sizes, **facts)
    known = {f.name for f in fields(config) if f.init}
    for needed in known & {"image_size", "history"}:
        if getattr(task, needed, None) is None:
            raise OptionError(f"{said}{name} reads {needed}, and {task.name} has none")
    chosen = _SIZE | facts | {"max_len": task.max_len, "image_size": image_size}
    chosen |= {"history": ("history",), **_MODELS.get(name, {}), **own}
    if hasattr(task, "k"):
        chosen["num_predict"] = task.max_len // task.k
    return config(**{key: value for key, value in chosen.items() if key in known})
