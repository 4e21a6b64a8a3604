"""Added positions of sequences that are grids read row by row, the last axis fastest."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from regard.core import OptionError
from regard.functional.positions.coordinates import coordinates
from regard.positions.absolute import AbsolutePosition


class Axial(AbsolutePosition):
    """One small table for each axis in the place of a long one (Kitaev et al. 2020, arXiv 2001.04451).

        PE[p] = [E_1[p // n_2] ; E_2[p mod n_2]]

    Any number of axes; without a `shape` two nearly equal ones that hold max_len. Shorter inputs take the first rows.
    Started as `learned` is.

    Args:
        shape: length of each axis, in tokens; None: two nearly equal ones that hold max_len
        dims: channels of each axis's table; None: equal parts
    """

    name = "axial"

    def __init__(
        self,
        dim: int,
        *,
        max_len: int | None = None,
        shape: Sequence[int] | None = None,
        dims: Sequence[int] | None = None,
    ):
        super().__init__()
        if shape is None:
            if max_len is None:
                raise OptionError(
                    "axial positions need shape or max_len: pass shape=(rows, columns)"
                )
            columns = math.isqrt(max_len - 1) + 1
            shape = (-(-max_len // columns), columns)
        if not shape:
            raise OptionError("axial: shape must hold at least one axis")
        self.dim = dim
        self.shape = tuple(shape)
        held = math.prod(self.shape)
        self.max_len = held if max_len is None else min(max_len, held)
        axes = len(self.shape)
        widths = dims or [*[dim // axes] * (axes - 1), dim - dim // axes * (axes - 1)]
        if len(widths) != axes or sum(widths) != dim or min(widths) < 1:
            raise OptionError(
                f"axial: dims {tuple(widths)} must be {axes} positive widths whose sum is dim ({dim})"
            )
        self.tables = nn.ParameterList(
            torch.empty(size, width) for size, width in zip(self.shape, widths, strict=True)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table in self.tables:
            nn.init.normal_(table, std=0.5**0.5)

    def encode(self, position, dtype):
        parts = []
        for size, table in zip(reversed(self.shape), reversed(list(self.tables)), strict=True):
            parts.append(table[position % size].to(dtype))
            position = position // size
        return torch.cat(parts[::-1], -1)


class Coordinates(AbsolutePosition):
    """x + W [row' ; column' (; radius)]: the coordinates, concatenated to x and projected (arXiv 1807.03247).

    CoordConv as a layer on tokens, W_x x + W_c c, with W_x the identity. With W = 0 it is no position at all.

    Args:
        grid: height and width of the grid, in tokens
        radius: True: the distance from the centre is a third coordinate
    """

    name = "coordinates"

    def __init__(self, dim: int, *, grid: Sequence[int], radius: bool = False):
        super().__init__()
        if len(grid) != 2:
            raise OptionError(f"coordinates: grid must be (height, width), got {tuple(grid)}")
        self.dim = dim
        self.grid = grid[0], grid[1]
        self.radius = radius
        self.max_len = math.prod(grid)
        self.project = nn.Linear(2 + radius, dim, bias=False)

    def encode(self, position, dtype):
        width = self.grid[1]
        row, column = position // width, position % width
        wide = self.project.weight.dtype
        return self.project(coordinates(row, column, self.grid, radius=self.radius, dtype=wide)).to(
            dtype
        )
