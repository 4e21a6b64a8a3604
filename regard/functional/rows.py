"""Taking whole rows: far faster than `gather`, which moves single numbers."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def rows_at(z: Float[Tensor, "n T K"], index: Int[Tensor, "n l"]) -> Float[Tensor, "n l K"]:
    """z[n, index[n]]"""
    return z.flatten(0, 1).index_select(0, flat(index, z.shape[1])).unflatten(0, index.shape)


def flat(index: Int[Tensor, "n *l"], T: int) -> Int[Tensor, "m"]:
    """Of the rows of [n T ..] as one line of rows."""
    row = torch.arange(index.shape[0], device=index.device)
    return (row.view(-1, *[1] * (index.dim() - 1)) * T + index).flatten()
