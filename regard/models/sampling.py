"""Choosing the next token from its logits."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OptionError


def check_sampling(
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> None:
    if not (
        isinstance(temperature, int | float) and math.isfinite(temperature) and temperature >= 0
    ):
        raise OptionError(f"temperature ({temperature!r}) must be 0 (greedy) or a positive number")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise OptionError(f"top_k ({top_k!r}) must be a positive integer, or None for all tokens")
    if top_p is not None and not (isinstance(top_p, int | float) and 0 < top_p <= 1):
        raise OptionError(
            f"top_p ({top_p!r}) must be above 0 and at most 1, or None for all tokens"
        )
    if not isinstance(generator, torch.Generator | None):
        raise OptionError(
            f"generator ({generator!r}) must be a torch.Generator, or None for the global one"
        )


def restrict(
    logits: Float[Tensor, "B V"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "B V"]:
    """-inf for tokens outside the k most likely, then outside the smallest set that holds probability top_p.

    Of equal logits the ones with smaller ids count as more likely.
    """
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    drop = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k is not None:
        drop[:, top_k:] = True
    if top_p is not None:
        share = ordered.masked_fill(drop, -math.inf).float().softmax(-1)
        drop |= share.cumsum(-1) - share >= top_p  # the probability before a token already suffices
    return logits.masked_fill(drop.scatter(1, ids, drop), -math.inf)


def sample(
    logits: Float[Tensor, "B V"],
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B"]:
    """The most likely token at temperature 0, else a draw from softmax(logits / temperature), restricted."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits.float() / temperature
    if top_k is not None or top_p is not None:
        logits = restrict(logits, top_k, top_p)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
