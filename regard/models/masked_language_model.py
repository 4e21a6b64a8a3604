"""MaskedLanguageModel: predicts the tokens that were hidden (Devlin et al. 2018, arXiv 1810.04805).

    logits = norm(gelu(W h + b)) E^T + c        h: a bidirectional stack, E: its embedding

`regard.models.corruption.corrupt` draws the inputs and labels. Unlike the paper's, the model has no segments and no next-sentence head, and its
positions and order of norms are the stack's. Cost: the stack's, and T D V for the logits.
"""

import torch.nn.functional as F
from torch import nn

from regard.models.config import Model, StackConfig
from regard.models.encoder import Encoder
from regard.models.tokens import Numbers, TokenLogits, Tokens, Valid
from regard.nn import NORMS
from regard.nn.norm import first_gain, start_gain
from regard.nn.starts import unset


class MaskedLanguageModelConfig(StackConfig):
    """A stack of bidirectional blocks that predicts masked tokens; fields as in StackConfig."""

    name = "masked_language_model"
    kinds = ("masked_language_model",)


class MaskedLanguageModel(Model):
    """model(tokens [B T], valid=[B T] | None) -> logits [B T vocab_size] of the token at each position."""

    name = "masked_language_model"

    def __init__(self, config: MaskedLanguageModelConfig):
        super().__init__(config)
        self.encoder = Encoder(config)
        self.transform = nn.Linear(self.encoder.width, config.dim)
        self.norm = NORMS[config.norm](config.dim)
        start_gain(self.norm, first_gain(config.dim, config.vocab_size))
        self.bias = unset(config.vocab_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(
        self, tokens: Tokens, *, valid: Valid = None, documents: Numbers = None
    ) -> TokenLogits:
        """documents: tokens of unlike numbers are as if in rows of their own."""
        hidden = self.encoder(tokens, valid=valid, documents=documents)
        hidden = self.norm(F.gelu(self.transform(hidden)))
        return F.linear(hidden, self.encoder.embedding.table.weight, self.bias)
