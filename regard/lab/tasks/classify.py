"""Classification of whole sequences, by accuracy unless a task says otherwise."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.lab.tasks.task import Batch, Splits, Task, TaskKind, evaluation


@dataclass(frozen=True, kw_only=True)
class Classify(Task):
    kind: ClassVar[TaskKind] = "classify"
    metric = "accuracy"
    better = "higher"
    baseline = "most frequent class"
    vocab_size: ClassVar[int]
    num_classes: ClassVar[int]

    @property
    def facts(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size, "num_classes": self.num_classes}

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B num_classes"]:
        """The model's logits."""
        return model(batch["tokens"], valid=batch["valid"])

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        return F.cross_entropy(self.answer(model, batch).float(), batch["labels"])

    def measure(self, answers: Int[Tensor, "n"], labels: Int[Tensor, "n"]) -> float:
        """The metric of these answers."""
        return float((answers == labels).double().mean())

    def answers(
        self, model: nn.Module, batches: Iterable[Batch]
    ) -> tuple[Int[Tensor, "n"], Int[Tensor, "n"]]:
        """The model's classes and the true ones, of all batches."""
        with evaluation(model):
            found = [(self.answer(model, b).argmax(-1).cpu(), b["labels"].cpu()) for b in batches]
        if not found:
            raise self.nothing
        answers, labels = zip(*found, strict=True)
        return torch.cat(answers), torch.cat(labels)

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return self.measure(*self.answers(model, batches))

    @property
    def has_scores(self) -> bool:
        return self.metric == "accuracy"

    def item_scores(self, model: nn.Module, batches: Iterable[Batch]) -> list[float]:
        answers, labels = self.answers(model, batches)
        return (answers == labels).double().tolist()

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """The metric of always answering the training split's most frequent class."""
        splits = splits or self.load()
        labels = splits.test.labels
        return self.measure(torch.bincount(splits.train.labels).argmax().expand_as(labels), labels)


Indices = NDArray[np.integer]


def stratified(
    labels: NDArray[np.integer], valid: float, test: float, seed: int
) -> tuple[Indices, Indices, Indices]:
    """Indices of the three parts, drawn by `seed`; every class has the same share (of its rows, rounded) in each."""
    rng = np.random.default_rng(seed)
    parts: tuple[list[Indices], ...] = ([], [], [])
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        borders = np.round(np.cumsum([test, valid]) * len(rows)).astype(int)
        of_test, of_valid, of_train = np.split(rows, borders)
        for part, found in zip(parts, (of_train, of_valid, of_test), strict=True):
            part.append(found)
    train, valid_rows, test_rows = (rng.permutation(np.concatenate(part)) for part in parts)
    return train, valid_rows, test_rows
