"""Taking whole rows: far faster than `gather`, which moves single numbers."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def rows_at(z: Float[Tensor, "n T K"], index: Int[Tensor, "n l"]) -> Float[Tensor, "n l K"]:
    """z[n, index[n]]"""
    row = torch.arange(index.shape[0], device=index.device)[:, None]
    flat = (row * z.shape[1] + index).flatten()
    return z.flatten(0, 1).index_select(0, flat).unflatten(0, index.shape)
