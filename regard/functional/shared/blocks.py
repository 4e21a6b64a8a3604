"""How work is cut: tiles of queries, groups of heads, and memory that the tiles reuse."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.functional.shared.implementation import Cut, cut
from regard.functional.shared.recompute import recomputed


def tiles(length: int, size: int) -> Iterator[slice]:
    """Consecutive slices of `size` places each, the last one shorter."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def by_tiles(
    attend: Callable[..., Float[Tensor, "B H t V"]], T: int, tile: int, *tensors: Any
) -> Float[Tensor, "B H T V"]:
    """attend(rows, *tensors) for every tile of T queries, side by side; made again in the backward if there are several."""
    rows = list(tiles(T, tile))
    if len(rows) < 2:
        return attend(slice(0, T), *tensors)
    return torch.cat([recomputed(attend, some, *tensors) for some in rows], dim=2)


class Workspace:
    """Scratch tensors by name. On a CPU their memory is reused: a first touch of fresh memory costs more than most passes."""

    def __init__(self, cut: Cut):
        self.reuse = cut.tiled
        self.held: dict[tuple[str, torch.dtype], Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """An uninitialised tensor of this shape, in the type and on the device of `like`."""
        if not self.reuse:
            return like.new_empty(shape)
        size, key = math.prod(shape), (name, like.dtype)
        if key not in self.held or self.held[key].numel() < size:
            self.held[key] = like.new_empty(size)
        return self.held[key][:size].view(shape)


def near(z: Tensor) -> bool:
    """True if small tiles in reused memory are faster."""
    return cut("", "auto", z).tiled


def heads_of(z: Float[Tensor, "B H T K"]) -> list[tuple[slice, slice]]:
    """Examples and heads to be worked at together, which stay in the cache on a CPU."""
    how = cut("", "auto", z)
    if not how.tiled:
        return [(slice(None), slice(None))]
    B, H, T, K = z.shape
    some = max(1, how.room // max(1, T * K * z.element_size()))
    heads, examples = min(some, H), max(1, some // H)
    return [(b, h) for b in tiles(B, examples) for h in tiles(H, heads)]


def rows_at(z: Float[Tensor, "n T K"], index: Int[Tensor, "n l"]) -> Float[Tensor, "n l K"]:
    """z[n, index[n]]. Whole rows: `index_select` is far faster than `gather`, which moves single numbers."""
    return z.flatten(0, 1).index_select(0, flat(index, z.shape[1])).unflatten(0, index.shape)


def flat(index: Int[Tensor, "n *l"], T: int) -> Int[Tensor, "m"]:
    """The same places in [n T ..] flattened to one axis of n T rows."""
    if index.shape[0] == 1:
        return index.flatten()
    row = torch.arange(index.shape[0], device=index.device)
    return (row.view(-1, *[1] * (index.dim() - 1)) * T + index).flatten()
