"""Classifier: a bidirectional encoder, the mean or the maximum over valid tokens, a linear head.

The maximum of each channel over time (Kim 2014, arXiv 1408.5882) keeps one telling token from being averaged away.
"""

from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models.config import Model, StackConfig
from regard.models.encoder import Encoder
from regard.pools import build_pool

Summary = Literal["mean", "max"]


class ClassifierConfig(StackConfig):
    """summary: what the head reads, the mean over valid tokens or the maximum of each channel."""

    name = "classifier"
    kinds = ("classify",)
    num_classes: int
    summary: Summary = "mean"

    def build(self) -> "Classifier":
        return Classifier(self)


class Classifier(Model):
    """model(tokens [B T], valid=[B T] | None) -> logits [B num_classes]; padding changes nothing."""

    name = "classifier"

    def __init__(self, config: ClassifierConfig):
        super().__init__(config)
        self.encoder = Encoder(config)
        self.pool = build_pool(config.summary, self.encoder.width)
        self.head = nn.Linear(self.encoder.width, config.num_classes)

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B num_classes"]:
        return self.head(self.pool(self.encoder(tokens, valid=valid), valid=valid)[:, 0])
