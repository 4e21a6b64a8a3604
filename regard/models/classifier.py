"""Classifier: a bidirectional encoder, the mean or the maximum over valid tokens, a linear head.

The maximum of each channel over time (Kim 2014, arXiv 1408.5882) keeps one telling token from being averaged away.
"""

from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.models.config import Logits, Model, StackConfig
from regard.models.encoder import Encoder
from regard.models.tokens import Tokens, Valid
from regard.pools import build_pool

Summary = Literal["mean", "max"]


class ClassifierConfig(StackConfig):
    """A classifier of texts. summary: what the head reads, the mean over valid tokens or the maximum of each channel."""

    name = "classifier"
    kinds = ("classify",)
    num_classes: int
    summary: Summary = "mean"


class Summariser(Model):
    """Base of models that make one vector of a sequence."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.encoder = Encoder(config)
        self.pool = build_pool(config.summary, self.encoder.width)

    def encode(self, tokens: Tokens, valid: Valid = None) -> Float[Tensor, "B D"]:
        """The vector of a sequence: computed once, it can be compared with many."""
        return self.pool(self.encoder(tokens, valid=valid), valid=valid)[:, 0]


class Classifier(Summariser):
    """model(tokens [B T], valid=[B T] | None) -> logits [B num_classes]; padding changes nothing."""

    name = "classifier"

    def __init__(self, config: ClassifierConfig):
        super().__init__(config)
        self.head = nn.Linear(self.encoder.width, config.num_classes)

    def forward(self, tokens: Tokens, *, valid: Valid = None) -> Logits:
        return self.head(self.encode(tokens, valid))
