"""Decisions in the parameters' own precision: autocast must not move a token from one bucket or cluster to another."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from regard.functional.numerics import autocast_dtype

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
    with torch.no_grad():
        if autocast_dtype(x) is None:
            return decide(projected)
        with torch.autocast(x.device.type, enabled=False):
            return decide(project(x.to(dtype)))
