"""Taking whole rows, and putting them back: far faster than `gather`, which moves single numbers."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def rows_at(z: Float[Tensor, "n T K"], index: Int[Tensor, "n l"]) -> Float[Tensor, "n l K"]:
    """z[n, index[n]]"""
    return z.flatten(0, 1).index_select(0, _flat(index, z.shape[1])).unflatten(0, index.shape)


def sums_at(z: Float[Tensor, "n l K"], index: Int[Tensor, "n l"], T: int) -> Float[Tensor, "n T K"]:
    """The sum of the rows of z that have each index: the transpose of `rows_at`."""
    n, K = z.shape[0], z.shape[2]
    sums = z.new_zeros(n * T, K).index_add(0, _flat(index, T), z.flatten(0, 1))
    return sums.unflatten(0, (n, T))


def _flat(index: Int[Tensor, "n l"], T: int) -> Int[Tensor, "m"]:
    return (torch.arange(index.shape[0], device=index.device)[:, None] * T + index).flatten()
