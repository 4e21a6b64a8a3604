"""Hiding tokens that a model then has to name (Devlin et al. 2018, arXiv 1810.04805)."""

from collections.abc import Collection
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core import Count, Mask, OptionError, Share, check_mask, checked
from regard.models.tokens import Tokens, Valid

IGNORED = -100


class Corrupted(NamedTuple):
    """Tokens as a masked language model reads them, and what it predicts."""

    tokens: Tokens
    labels: Int[Tensor, "B T"]  # the original tokens, -100 where none is predicted


@checked
def corrupt(
    tokens: Tokens,
    *,
    mask_token: Count,
    vocab_size: int,
    valid: Valid = None,
    never: Collection[Count] = (),
    rate: Share = 0.15,
    generator: torch.Generator | None = None,
) -> Corrupted:
    """Each token is chosen with probability `rate`; 8 in 10 of those become mask_token and 1 any token of the vocabulary.

    Tokens that are not valid or are among `never` (separators, say) are neither chosen nor changed.
    Raises OptionError for a rate outside 0 to 1, or a mask_token outside the vocabulary.
    """
    if mask_token >= vocab_size:
        raise OptionError(
            f"mask_token ({mask_token}) must be a token id below vocab_size ({vocab_size})"
        )
    if vocab_size - 1 > torch.iinfo(tokens.dtype).max:
        raise OptionError(
            f"corrupt: tokens of {tokens.dtype} cannot be {vocab_size - 1}: convert them"
        )
    B, T = tokens.shape
    draw, fate = torch.rand(2, B, T, generator=generator, device=tokens.device)
    chosen = draw < rate
    drawn = torch.randint(vocab_size, (B, T), generator=generator, device=tokens.device)
    if valid is not None:
        check_mask("corrupt", Mask(valid=valid), B, T, T, device=tokens.device)
        chosen &= valid
    for token in never:
        chosen &= tokens != token
    changed = torch.where(fate < 0.8, mask_token, torch.where(fate < 0.9, drawn, tokens))
    inputs = torch.where(chosen, changed, tokens).type_as(tokens)
    return Corrupted(inputs, tokens.masked_fill(~chosen, IGNORED))
