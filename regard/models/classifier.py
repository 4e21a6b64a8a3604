"""Classifier: a bidirectional encoder, the mean or the maximum over valid tokens, a linear head.

The maximum of each channel over time (Kim 2014, arXiv 1408.5882) keeps one telling token from being averaged away.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.request import clear
from regard.models.config import UNSAID, Model, StackConfig
from regard.models.encoder import Encoder

Summary = Literal["mean", "max"]


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(StackConfig):
    """summary: what the head reads, the mean over valid tokens or the maximum of each channel."""

    name = "classifier"
    kinds = ("classify",)
    num_classes: int
    summary: Summary = field(default="mean", metadata=UNSAID)

    def build(self) -> "Classifier":
        return Classifier(self)


class Classifier(Model):
    """model(tokens [B T], valid=[B T] | None) -> logits [B num_classes]; padding changes nothing."""

    name = "classifier"

    def __init__(self, config: ClassifierConfig):
        super().__init__(config)
        self.encoder = Encoder(config)
        self.head = nn.Linear(self.encoder.width, config.num_classes)

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B num_classes"]:
        summary = SUMMARIES[self.config.summary](self.encoder(tokens, valid=valid), valid)
        return self.head(summary)


def mean(x: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B D"]:
    """Over the valid tokens; zero where there are none."""
    if valid is None:
        return x.mean(1)
    return clear(x, valid).sum(1) / valid.sum(1, keepdim=True).clamp(min=1)


def maximum(x: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B D"]:
    """Over the valid tokens; zero where there are none."""
    if valid is None:
        return x.amax(1)
    largest = torch.where(valid[..., None], x, -torch.inf).amax(1)
    return torch.where(valid.any(1, keepdim=True), largest, 0.0)


SUMMARIES = {"mean": mean, "max": maximum}
