"""Classification of whole sequences, by accuracy."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OptionError
from regard.tasks.evaluation import evaluation
from regard.tasks.task import Batch, Splits, Task


@dataclass(frozen=True, kw_only=True)
class Classify(Task):
    kind = "classify"
    metric = "accuracy"
    better = "higher"
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

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        from torchmetrics.classification import MulticlassAccuracy

        accuracy = MulticlassAccuracy(num_classes=self.num_classes, average="micro")
        seen = False
        with evaluation(model):
            for batch in batches:
                logits = self.answer(model, batch)
                accuracy.to(logits.device).update(logits.argmax(-1), batch["labels"])
                seen = True
        if not seen:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return float(accuracy.compute())

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the training split's most frequent class."""
        splits = splits or self.load()
        majority = torch.bincount(splits.train.labels).argmax()
        return float((splits.test.labels == majority).double().mean())
