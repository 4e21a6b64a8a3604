"""Answers given token by token: the loss that language modelling and recall share."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.lab.tasks.task import IGNORED, Batch, Kind, Task


@dataclass(frozen=True, kw_only=True)
class NextToken(Task):
    kind: ClassVar[Kind] = "language_model"
    vocab_size: ClassVar[int]

    @property
    def facts(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size}

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        logits = model(batch["tokens"], valid=batch["valid"]).float()
        return F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED
        )
