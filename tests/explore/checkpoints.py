"""Checkpoints as users have them, each trained for two steps: folders of `regard train`, and of `TableClassifier.save`."""

from pathlib import Path
from typing import Any

import numpy as np

from regard import models
from regard.lab.data.debian import Document
from regard.lab.tables import TableClassifier
from regard.lab.tasks import DebianSections, Digits, Task
from regard.lab.tasks.language_models import OwnText
from regard.lab.tasks.pairs import TextFiles
from regard.lab.tasks.texts import LabelledTexts
from regard.lab.train import Run, TrainConfig, train

BRIEF = TrainConfig(steps=2, batch_size=8, eval_every=2, checkpoint_every=2, keep=1, log_dir=None)
SMALL: dict[str, Any] = {"dim": 24, "num_heads": 3, "num_layers": 2}


def of_texts(folder: Path, mixer: str) -> Path:
    path = folder.with_suffix(".csv")
    path.write_text("text,label\n" + "".join(f"{n} <cat> sat,{n % 2}\n" for n in range(64)))
    task = LabelledTexts(path=path, length=16)
    model = models.ClassifierConfig(**task.facts, num_classes=2, max_len=64, mixer=mixer, **SMALL)
    return run(folder, task, model)


def of_bytes(folder: Path) -> Path:
    """A language model of 200 bytes that looks at its neighbours."""
    path = folder.with_suffix(".txt")
    path.write_text(" ".join(f"{n} the cat sat" for n in range(1000)))
    task = OwnText(path=path, length=100, valid_size=4, test_size=4)
    model = models.LanguageModelConfig(
        vocab_size=task.vocab_size, max_len=200, mixer="local", **SMALL
    )
    return run(folder, task, model)


def of_pairs(folder: Path) -> Path:
    files = folder.with_suffix(".files")
    files.mkdir()
    for side, animals in (("en", "cat dog"), ("ge", "Katze Hund")):
        (files / f"train.{side}").write_text("".join(f"{n} {animals}\n" for n in range(320)))
    sizes = {"vocab_size": 280, "source_len": 24, "target_len": 24}
    task = TextFiles(path=files, **sizes, valid_size=4, test_size=4)
    return run(folder, task, models.TransformerConfig(vocab_size=280, max_len=24, **SMALL))


def of_documents(folder: Path) -> Path:
    text = "A rogue like game.", "It is played in room x{}, by y{}."
    texts = [tuple(part.format(n // 8, n % 8) for part in text) for n in range(64)]
    documents = [Document(f"s{n}", ("games", "net")[n % 2], text) for n, text in enumerate(texts)]
    task = DebianSections(vocab_size=40)
    model = models.HANConfig(**task.facts, dim=8, hidden_dim=6, attention_dim=5)
    return run(folder, task, model, splits=task.of(documents))


def of_pixels(folder: Path) -> Path:
    task = Digits()
    options: dict[str, Any] = {"max_len": 64, "position": "axial", "num_layers": 1}
    model = models.ClassifierConfig(
        **task.facts, **SMALL | options, position_options={"shape": (8, 8)}
    )
    return run(folder, task, model)


def of_patches(folder: Path) -> Path:
    task = Digits()
    model = models.PatchClassifierConfig(**task.facts, image_size=(8, 8), patch_size=4, **SMALL)
    return run(folder, task, model)


def run(folder: Path, task: Task, model: models.ModelConfig, **splits: Any) -> Path:
    train(Run(task=task, model=model, train=BRIEF), folder, progress=False, **splits)
    return folder


def of_histories(folder: Path) -> Path:
    drawn = np.random.default_rng(0).integers(0, 9, (120, 5))
    history, items = drawn[:, :-1], drawn[:, -1]
    liked = (history % 3 == items[:, None] % 3).any(1)
    table = {"items": items, "history": [list(row) for row in history]}
    model = models.DINConfig(history=("history",), dim=3)
    return table_model(folder, model, table, liked, {"history": "items"})


def of_fields(folder: Path) -> Path:
    return table_model(folder, models.AutoIntConfig(dim=4, num_heads=2, num_layers=2), *_people())


def of_two_labels(folder: Path) -> Path:
    table, kind = _people()
    labels = {"click": kind, "buy": np.roll(kind, 1)}
    return table_model(folder, models.MMoEConfig(num_experts=3), table, labels)


def _people() -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    user, age = rng.integers(0, 6, 80), rng.normal(40, 9, 80).round()
    return {"user": user, "age": age, "shop": user % 3}, (age > 40).astype(float)


def table_model(
    folder: Path, model: models.ModelConfig, table: Any, labels: Any, of: Any = None
) -> Path:
    TableClassifier(model, train=BRIEF, of=of).fit(table, labels).save(folder)
    return folder


KINDS = {
    "bytes": of_bytes, "pairs": of_pairs, "documents": of_documents, "pixels": of_pixels,
    "patches": of_patches, "din": of_histories, "autoint": of_fields, "mmoe": of_two_labels,
}  # fmt: skip
"""And the name of a mixer: a classifier of texts with it."""


def trained(folder: Path, what: str) -> Path:
    """The checkpoint of this kind or mixer, written there unless it is there already."""
    where = folder / what
    if not where.exists():
        KINDS[what](where) if what in KINDS else of_texts(where, what)
    return where
