"""Distillation: windows of one's own text on which a model learns what another gives. Made by `regard convert`, in no catalogue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.records import Data, Examples
from regard.lab.tasks.task import Batch, Splits, Task, evaluation

HELD = 16
"""Windows that choose the best weights, and as many that compare both models."""


@dataclass(frozen=True, kw_only=True)
class Distillation(Task):
    """error(student, teacher, tokens, valid) is the loss and the metric; the text's first windows are held out."""

    name: ClassVar[str] = "convert"
    metric: ClassVar[str] = "error"
    better: ClassVar[Literal["higher", "lower"]] = "lower"
    baseline: ClassVar[str] = "zeros"

    teacher: nn.Module
    ids: Int[Tensor, "n"]
    length: int
    error: Callable[..., Float[Tensor, ""]]

    def __post_init__(self) -> None:
        least = (2 * HELD + 1) * self.length
        if self.length < 1 or len(self.ids) < least:
            raise OptionError(
                f"convert: the text has {len(self.ids)} tokens, and windows of length {self.length} need {least}. "
                "Give more text, or another --length."
            )

    @property
    def facts(self) -> dict[str, Any]:
        return {}

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        count = len(self.ids) // self.length
        rows = self.ids[: count * self.length].view(count, self.length).numpy()
        parts = rows[2 * HELD :], rows[:HELD], rows[HELD : 2 * HELD]
        return Splits(*(Examples.windows(part, part) for part in parts))

    def held_out(self) -> list[Batch]:
        """The test windows, four at a time: they compare both models."""
        return self._fours(self.load().test)

    def choosing(self) -> list[Batch]:
        """The validation windows, four at a time: they choose weights."""
        return self._fours(self.load().valid)

    def _fours(self, data: Data) -> list[Batch]:
        items = [data[i] for i in range(len(data))]
        return [self.collate(items[i : i + 4]) for i in range(0, len(items), 4)]

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        return self.error(model, self.teacher, batch["tokens"], batch["valid"])

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        with evaluation(model):
            errors = [self.loss(model, batch) for batch in batches]
        return torch.stack(errors).mean().item()

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        return 1.0

    def perplexity(self, model: Any) -> float:
        """The perplexity of a causal model with a head, on the test windows."""
        losses = []
        with evaluation(model):
            for ids in (batch["tokens"] for batch in self.held_out()):
                logits = model.head(model(ids))[:, :-1]
                losses.append(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
        return torch.stack(losses).mean().exp().item()
