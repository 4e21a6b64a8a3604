"""Checkpoints as users have them, each trained for two steps: folders of `regard train`, and of `TableClassifier.save`."""

from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

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
FEW: dict[str, Any] = {"valid_size": 4, "test_size": 4}
USER = np.random.default_rng(0).integers(0, 6, 80)
PEOPLE = {"user": USER, "age": 20.0 + 5 * USER, "shop": USER % 3}
YOUNG = (USER < 3).astype(float)


def run(folder: Path, task: Task, model: models.ModelConfig, **splits: Any) -> None:
    train(Run(task=task, model=model, train=BRIEF), folder, progress=False, **splits)


def of_texts(folder: Path, mixer: str) -> None:
    path = folder.with_suffix(".csv")
    path.write_text("text,label\n" + "".join(f"{n} <cat> sat,{n % 2}\n" for n in range(64)))
    task = LabelledTexts(path=path, length=16)
    facts = {**task.facts, "num_classes": 2, "max_len": 64}
    run(folder, task, models.ClassifierConfig(**facts, mixer=mixer, **SMALL))


def of_bytes(folder: Path) -> None:
    """A language model of 200 bytes that looks at its neighbours."""
    path = folder.with_suffix(".txt")
    path.write_text(" ".join(f"{n} the cat sat" for n in range(1000)))
    task = OwnText(path=path, length=100, **FEW)
    sizes = {"vocab_size": task.vocab_size, "max_len": 200}
    run(folder, task, models.LanguageModelConfig(**sizes, mixer="local", **SMALL))


def of_pairs(folder: Path) -> None:
    files = folder.with_suffix(".files")
    files.mkdir()
    for side, animals in (("en", "cat dog"), ("ge", "Katze Hund")):
        (files / f"train.{side}").write_text("".join(f"{n} {animals}\n" for n in range(320)))
    task = TextFiles(path=files, vocab_size=280, source_len=24, target_len=24, **FEW)
    run(folder, task, models.TransformerConfig(vocab_size=280, max_len=24, **SMALL))


def of_documents(folder: Path) -> None:
    text = "A rogue like game.", "It is played in room x{}, by y{}."
    texts = [tuple(part.format(n // 8, n % 8) for part in text) for n in range(64)]
    documents = [Document(f"s{n}", ("games", "net")[n % 2], text) for n, text in enumerate(texts)]
    task = DebianSections(vocab_size=40)
    model = models.HANConfig(**task.facts, dim=8, hidden_dim=6, attention_dim=5)
    found = {"archive": mock.DEFAULT, "read_documents": lambda archive: documents}
    with mock.patch.multiple("regard.lab.tasks.texts", **found):
        splits = task.load()
    run(folder, task, model, splits=splits)


def of_digits(folder: Path, kind: type[models.ModelConfig], **options: Any) -> None:
    run(folder, Digits(), kind(**Digits().facts, **SMALL, **options))


def of_histories(folder: Path) -> None:
    drawn = np.random.default_rng(0).integers(0, 9, (120, 5))
    table = {"items": drawn[:, 0], "history": [list(row) for row in drawn[:, 1:]]}
    model, of = models.DINConfig(history=("history",), dim=3), {"history": "items"}
    TableClassifier(model, train=BRIEF, of=of).fit(table, drawn[:, 0] % 2).save(folder)


def of_people(folder: Path, model: models.ModelConfig, labels: Any = YOUNG) -> None:
    TableClassifier(model, train=BRIEF).fit(PEOPLE, labels).save(folder)


GRID = {"max_len": 64, "position": "axial", "position_options": {"shape": (8, 8)}}
BOTH = {"click": YOUNG, "buy": np.roll(YOUNG, 1)}
KINDS = {
    "bytes": of_bytes, "pairs": of_pairs, "documents": of_documents, "din": of_histories,
    "pixels": partial(of_digits, kind=models.ClassifierConfig, **GRID),
    "patches": partial(of_digits, kind=models.PatchClassifierConfig, image_size=(8, 8), patch_size=4),
    "autoint": partial(of_people, model=models.AutoIntConfig(dim=4, num_heads=2, num_layers=2)),
    "mmoe": partial(of_people, model=models.MMoEConfig(num_experts=3), labels=BOTH),
}  # fmt: skip
"""And the name of a mixer: a classifier of texts with it."""


def trained(folder: Path, what: str) -> Path:
    """The checkpoint of this kind or mixer, written there unless it is there already."""
    where = folder / what
    if not where.exists():
        KINDS[what](where) if what in KINDS else of_texts(where, what)
    return where
