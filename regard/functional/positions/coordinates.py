"""Coordinates of grid cells as features (CoordConv, Liu et al. 2018, arXiv 1807.03247).

    row' = 2 row/(height - 1) - 1,   column' = 2 column/(width - 1) - 1,   radius = sqrt(row'^2 + column'^2)

An axis of size 1 gives 0. The released code exchanges the divisors of the axes and some ports shift the centre of the
radius; neither is followed.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def coordinates(
    row: Int[Tensor, "*b"],
    column: Int[Tensor, "*b"],
    grid: tuple[int, int],
    *,
    radius: bool,
    dtype: torch.dtype,
) -> Float[Tensor, "*b features"]:
    """(row', column') or (row', column', radius) of each cell of a grid (height, width), in [-1, 1]."""
    height, width = grid
    y = _scaled(row, height, dtype)
    x = _scaled(column, width, dtype)
    features = [y, x, (y.square() + x.square()).sqrt()] if radius else [y, x]
    return torch.stack(features, -1)


def _scaled(index: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    index = index.to(dtype)
    return torch.zeros_like(index) if size == 1 else 2 * index / (size - 1) - 1
