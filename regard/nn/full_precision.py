"""Decisions in the parameters' own precision: autocast must not move a token from one bucket or cluster to another."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Projected = TypeVar("Projected")
Decided = TypeVar("Decided")


def in_full_precision(
    decide: Callable[[Projected], Decided],
    projected: Projected,
    *,
    project: Callable[[Tensor], Projected],
    x: Tensor,
    dtype: torch.dtype,
) -> Decided:
    """decide(projected), without gradient; under autocast, decide(project(x)) computed in `dtype`."""
    kind = x.device.type
    with torch.no_grad():
        if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
            return decide(projected)
        with torch.autocast(kind, enabled=False):
            return decide(project(x.to(dtype)))
