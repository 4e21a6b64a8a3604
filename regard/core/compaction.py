"""Moving every row's valid tokens to its front and back again, so that kernels see right padding only."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


class Compaction(NamedTuple):
    source: Int[Tensor, "B S"]  # column c of the compact row comes from column source[c]
    target: Int[Tensor, "B S"]  # column s of the given row goes to column target[s]
    valid: Bool[Tensor, "B S"]  # of the compact row


def compaction(valid: Bool[Tensor, "B S"]) -> Compaction:
    """The stable permutation that puts valid tokens first."""
    count = valid.sum(dim=1, keepdim=True)
    target = torch.where(valid, valid.cumsum(1) - 1, count + (~valid).cumsum(1) - 1)
    columns = torch.arange(valid.shape[1], device=valid.device).expand_as(target)
    source = torch.empty_like(target).scatter_(1, target, columns)
    return Compaction(source, target, columns < count)


def permute(
    x: Shaped[Tensor, "b *axes"], order: Int[Tensor, "B S"], dim: int = 1
) -> Shaped[Tensor, "B *axes"]:
    """Take entries along `dim` in the order given for each row of the batch."""
    if x.shape[0] != order.shape[0]:
        x = x.expand(order.shape[0], *x.shape[1:])
    index = order.reshape(
        order.shape[0], *(order.shape[1] if d == dim else 1 for d in range(1, x.dim()))
    )
    return x.gather(dim, index.expand_as(x))
