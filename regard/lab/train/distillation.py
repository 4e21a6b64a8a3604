"""Distillation: windows of one's own text on which a model learns what another gives. Made by `regard convert`, in no catalogue."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.records import Examples
from regard.lab.tasks.task import Batch, Columns, Loss, Splits, Task
from regard.lab.train.batches import in_order
from regard.models.generation import evaluating

HELD = 16
"""Windows that choose the best weights, and as many that compare both models."""


class Distillation(Task):
    """error(student, teacher, tokens, valid) is the loss and the metric; the text's first windows are held out."""

    name = "convert"
    metric = "error"
    better = "lower"
    baseline = "zeros"
    has_scores = False
    facts = {}

    teacher: nn.Module
    ids: Tensor  # [n], of whole windows
    length: int
    error: Callable[..., Loss]

    def __post_init__(self):
        found, least = len(self.ids) // self.length, 2 * HELD + 1
        if found < least:
            raise OptionError(
                f"convert: the text fills {found} of the {least} windows of length {self.length} that teaching needs. "
                "Give more text, or a smaller --length."
            )

    def load(self) -> Splits:
        rows = self.ids.unfold(0, self.length, self.length).numpy()
        parts = rows[2 * HELD :], rows[:HELD], rows[HELD : 2 * HELD]
        return Splits(*(Examples.windows(part, part) for part in parts))

    def held_out(self, part: Literal["valid", "test"] = "test") -> list[Batch]:
        """Windows, four at a time: the validation part's choose weights, the test part's compare both models."""
        return list(in_order(getattr(self.load(), part), 4, self.collate))

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return self.error(model, self.teacher, batch["tokens"], batch["valid"])

    def columns(self, model: nn.Module, batch: Batch) -> Columns:
        """The error of a batch, once for each of its windows."""
        error = self.loss(model, batch).expand(len(batch["tokens"]))
        return error, torch.ones_like(error)

    def trivial_baseline(self, splits: Splits) -> float:
        return 1.0

    def perplexity(self, model: Any) -> float:
        """The perplexity of a causal model with a head, on the test windows."""
        losses = []
        with evaluating(model), torch.no_grad():
            for ids in (batch["tokens"] for batch in self.held_out()):
                logits = model.head(model(ids))[:, :-1]
                losses.append(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
        return torch.stack(losses).mean().exp().item()
