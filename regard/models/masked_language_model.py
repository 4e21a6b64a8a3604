"""MaskedLanguageModel: says what stands where tokens were hidden (Devlin et al. 2018, arXiv 1810.04805).

    logits = norm(gelu(W h + b)) E^T + c        h: a bidirectional stack, E: its embedding

`corrupt` draws the inputs and labels. Unlike the paper's, the model has no segments and no next-sentence head, and its
positions and order of norms are the stack's. Cost: the stack's, and T D V for the logits.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask, OptionError
from regard.models.config import StackConfig
from regard.models.encoder import Encoder
from regard.nn import NORMS

IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelConfig(StackConfig):
    name: ClassVar[str] = "masked_language_model"
    kinds = ("masked_language_model",)

    def build(self) -> "MaskedLanguageModel":
        return MaskedLanguageModel(self)


class MaskedLanguageModel(nn.Module):
    """model(tokens [B T], valid=[B T] | None) -> logits [B T vocab_size] of the token at each position."""

    name = "masked_language_model"

    def __init__(self, config: MaskedLanguageModelConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.transform = nn.Linear(self.encoder.width, config.dim)
        self.norm = NORMS[config.norm](config.dim)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T vocab"]:
        hidden = self.norm(F.gelu(self.transform(self.encoder(tokens, valid=valid))))
        return F.linear(hidden, self.encoder.embedding.table.weight, self.bias)


class Corrupted(NamedTuple):
    tokens: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]  # what stood there, -100 where nothing is asked


def corrupt(
    tokens: Int[Tensor, "B T"],
    *,
    mask_token: int,
    vocab_size: int,
    valid: Bool[Tensor, "B T"] | None = None,
    never: Collection[int] = (),
    rate: float = 0.15,
    generator: torch.Generator | None = None,
) -> Corrupted:
    """Each token is asked for with probability `rate`; of those 8 in 10 become mask_token and 1 any token of the vocabulary.

    Tokens that are not valid or are among `never` (separators, say) are neither asked for nor changed.
    """
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise OptionError(f"rate ({rate!r}) must be at least 0 and at most 1")
    if not 0 <= mask_token < vocab_size:
        raise OptionError(
            f"mask_token ({mask_token}) must be a token id below vocab_size ({vocab_size})"
        )
    B, T = tokens.shape
    asked_at, fate = torch.rand(2, B, T, generator=generator, device=tokens.device)
    asked = asked_at < rate
    drawn = torch.randint(vocab_size, (B, T), generator=generator, device=tokens.device)
    if valid is not None:
        Mask(valid=valid).check("corrupt", B, T, T)
        asked &= valid
    for token in never:
        asked &= tokens != token
    changed = torch.where(fate < 0.8, mask_token, torch.where(fate < 0.9, drawn, tokens))
    inputs = torch.where(asked, changed, tokens).to(tokens.dtype)
    return Corrupted(inputs, tokens.masked_fill(~asked, IGNORED))
