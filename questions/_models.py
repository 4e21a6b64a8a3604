"""The model around a mechanism that some of these questions train: a stack, and few classes at every token."""

from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models import StackConfig
from regard.models.encoder import Encoder


class ReaderConfig(StackConfig):
    """A stack and a readout of few classes at every token, which is learned sooner than the tied logits of all tokens."""

    name: ClassVar[str] = "reader"
    kinds = ("masked_language_model", "language_model")
    num_classes: int = 0
    causal: bool = False

    def build(self) -> "Reader":
        return Reader(self)


class Reader(nn.Module):
    """model(tokens [B T], valid=None) -> logits [B T num_classes]"""

    def __init__(self, config: ReaderConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, causal=config.causal)
        self.readout = nn.Linear(self.encoder.width, config.num_classes)

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T num_classes"]:
        return self.readout(self.encoder(tokens, valid=valid))
