"""Classifier: a bidirectional encoder, the mean over valid tokens, a linear head."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.shapes import check_positive
from regard.models.config import StackConfig
from regard.models.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(StackConfig):
    name: ClassVar[str] = "classifier"
    kinds = ("classify",)
    num_classes: int

    def __post_init__(self):
        super().__post_init__()
        check_positive(num_classes=self.num_classes)

    def build(self) -> "Classifier":
        return Classifier(self)


class Classifier(nn.Module):
    """model(tokens [B T], valid=[B T] | None) -> logits [B num_classes]; padding changes nothing."""

    name = "classifier"

    def __init__(self, config: ClassifierConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = nn.Linear(self.encoder.width, config.num_classes)

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B num_classes"]:
        return self.head(mean(self.encoder(tokens, valid=valid), valid))


def mean(x: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B D"]:
    """Over the valid tokens; zero where there are none."""
    if valid is None:
        return x.mean(1)
    return torch.where(valid[..., None], x, x.new_zeros(())).sum(1) / valid.sum(
        1, keepdim=True
    ).clamp(min=1)
