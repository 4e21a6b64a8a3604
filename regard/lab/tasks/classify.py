"""Classification of whole sequences, by accuracy unless a task says otherwise."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.tasks.task import Batch, Splits, Task, TaskKind, evaluation

if TYPE_CHECKING:
    from torchmetrics import Metric


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

    def meter(self) -> "Metric":
        """The torchmetrics class that `metric` names."""
        from torchmetrics.classification import MulticlassAccuracy

        return MulticlassAccuracy(num_classes=self.num_classes, average="micro")

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        meter = self.meter()
        seen = False
        with evaluation(model):
            for batch in batches:
                logits = self.answer(model, batch)
                meter.to(logits.device).update(logits.argmax(-1), batch["labels"])
                seen = True
        if not seen:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return float(meter.compute())

    @property
    def has_scores(self) -> bool:
        return self.metric == "accuracy"

    def item_scores(self, model: nn.Module, batches: Iterable[Batch]) -> list[float]:
        with evaluation(model):
            right = [self.answer(model, b).argmax(-1) == b["labels"] for b in batches]
        return torch.cat(right).double().tolist()

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """The metric of always answering the training split's most frequent class."""
        splits = splits or self.load()
        majority = torch.bincount(splits.train.labels).argmax()
        meter, labels = self.meter(), splits.test.labels
        meter.update(majority.expand(len(labels)), labels)
        return float(meter.compute())


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
