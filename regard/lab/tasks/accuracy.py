"""Accuracy of the answers that a model gives at labelled tokens."""

from collections.abc import Iterable

import torch
from torch import nn

from regard.core import OptionError
from regard.lab.tasks.evaluation import evaluation
from regard.lab.tasks.task import IGNORED, Batch, Splits


def accuracy_of_answers(
    who: str, model: nn.Module, batches: Iterable[Batch], *, vocab_size: int
) -> float:
    """Share of the labels that are the model's most likely token there."""
    from torchmetrics.classification import MulticlassAccuracy

    accuracy = MulticlassAccuracy(num_classes=vocab_size, average="micro", ignore_index=IGNORED)
    seen = False
    with evaluation(model):
        for batch in batches:
            answers = model(batch["tokens"], valid=batch["valid"]).argmax(-1)
            accuracy.to(answers.device).update(answers, batch["labels"])
            seen = True
    if not seen:
        raise OptionError(f"{who}: score needs at least one batch, got none")
    return float(accuracy.compute())


def most_frequent_answer(splits: Splits) -> float:
    """Accuracy of always answering what is asked for most often in the training split."""
    seen, asked = (part.labels[part.labels != IGNORED] for part in (splits.train, splits.test))
    return float((asked == torch.bincount(seen).argmax()).double().mean())
