"""Trade compute for memory: a function whose backward keeps its arguments and nothing that it made."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def recomputed(function: Callable[..., Tensor], *arguments: Any, random: bool = False) -> Tensor:
    """function(*arguments); the backward calls it again. random: it draws random numbers, the same ones both times."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=random)
