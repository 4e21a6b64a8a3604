"""DualEncoder: do two sequences match? One encoder reads both, a small network compares (Tay et al. 2020, arXiv 2011.04006).

    logits = MLP([e1 ; e2 ; e1 * e2 ; e1 - e2])        e: mean or maximum over valid tokens
    MLP: relu layers of width M and M / 2, then linear

The paper takes the output at a learned first token in the place of e. Cost: the stack's, twice.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OptionError, ShapeError, Vectors
from regard.models.classifier import Summariser, Summary
from regard.models.config import Logits, StackConfig
from regard.models.tokens import Source, SourceValid, Tokens, Valid


class DualEncoderConfig(StackConfig):
    """A stack that reads both sequences, and a network that compares them; fields as in StackConfig.

    Args:
        mlp_dim: channels M of the comparing network's first layer; None: four times dim
    """

    name = "dual_encoder"
    kinds = ("match",)
    num_classes: int = 2
    mlp_dim: int | None = None
    summary: Summary = "mean"

    def __post_init__(self):
        super().__post_init__()
        if self.mlp_dim == 1:
            raise OptionError("mlp_dim (1) must be at least 2: the second layer has half of it")


class DualEncoder(Summariser):
    """model(first [B S], second [B T], first_valid=, second_valid=) -> logits [B num_classes]."""

    name = "dual_encoder"

    def __init__(self, config: DualEncoderConfig):
        super().__init__(config)
        width = config.mlp_dim or 4 * config.dim
        self.head = nn.Sequential(
            nn.Linear(4 * self.encoder.width, width),
            nn.ReLU(),
            nn.Linear(width, width // 2),
            nn.ReLU(),
            nn.Linear(width // 2, config.num_classes),
        )

    def forward(
        self,
        first: Source,
        second: Tokens,
        *,
        first_valid: SourceValid = None,
        second_valid: Valid = None,
    ) -> Logits:
        """Logits [B num_classes] of pairs of texts. Raises ShapeError where the batches differ."""
        e1 = self.encode(first, first_valid)
        e2 = self.encode(second, second_valid)
        if e1.shape[0] != e2.shape[0]:
            raise ShapeError(f"dual_encoder: first has batch {len(e1)}, second {len(e2)}")
        return self.compare(e1, e2)

    def compare(self, e1: Vectors, e2: Vectors) -> Float[Tensor, "*b num_classes"]:
        return self.head(torch.cat([e1, e2, e1 * e2, e1 - e2], -1))
