"""How work is cut for a CPU's caches: tiles of queries, groups of heads, and memory that the tiles reuse."""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import Mask
from regard.functional.rows import Form

ROOM = 1 << 20
"""Bytes for each thread, unless the core's cache is smaller."""


class Cut(NamedTuple):
    tile: int  # queries whose scores are held at once
    room: int  # bytes of temporaries held at once, for all threads together
    threads: int  # that share the room


def cut(form: Form, tile: int) -> Cut:
    """The sizes that are asked for; else this tile, and the room that the machine has."""
    threads = torch.get_num_threads()
    return Cut(form.tile or tile, (form.room or min(core_cache(), ROOM)) * threads, threads)


@cache
def core_cache() -> int:
    """Bytes of the second-level cache of one core, as Linux reports it; 1 MiB where it reports none."""
    found = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        size = found.read_text().strip()
        return int(size.removesuffix("K")) * 1024 if size.endswith("K") else int(size)
    except (OSError, ValueError):
        return 1 << 20


def tiles(length: int, size: int) -> Iterator[slice]:
    """Consecutive slices of `size` places each, the last one shorter."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


class Hidden(NamedTuple):
    """Pairs of a tile that are not allowed, in the part of it that has any."""

    place: tuple[slice, slice]
    pairs: Bool[Tensor, "b h t s"]


def hidden_pairs(
    mask: Mask, T: int, S: int, rows: slice, cols: slice, device: torch.device
) -> Hidden | None:
    """None: all pairs of these queries and keys are allowed."""
    if mask.only_causal and T == S:
        i, j = (
            slice(rows.start, min(rows.stop, cols.stop)),
            slice(max(rows.start, cols.start), cols.stop),
        )
        if j.stop <= i.start + 1:
            return None
        query, key = (torch.arange(z.start, z.stop, device=device) for z in (i, j))
        place = slice(0, i.stop - rows.start), slice(j.start - cols.start, None)
        return Hidden(place, (key > query[:, None])[None, None])
    if mask.valid is None and mask.pairwise is None and not mask.causal:
        return None
    place = slice(None), slice(None)
    return Hidden(place, ~mask.dense(T, S, device=device, rows=rows, cols=cols))


class Workspace:
    """Scratch tensors by name. Their memory is reused: a first touch of fresh memory costs more than most passes."""

    def __init__(self):
        self.held: dict[tuple[str, torch.dtype], Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """An uninitialised tensor of this shape, in the type and on the device of `like`."""
        size, key = math.prod(shape), (name, like.dtype)
        if key not in self.held or self.held[key].numel() < size:
            self.held[key] = like.new_empty(size)
        return self.held[key][:size].view(shape)

    def rows(
        self, name: str, z: Float[Tensor, "n K"], index: Int[Tensor, "m"]
    ) -> Float[Tensor, "m K"]:
        """z[index]"""
        return torch.index_select(z, 0, index, out=self(name, z, index.shape[0], z.shape[1]))

    def product(
        self, name: str, a: Float[Tensor, "n t K"], b: Float[Tensor, "n K s"], scale: float = 1.0
    ) -> Float[Tensor, "n t s"]:
        """scale a b"""
        out = self(name, a, a.shape[0], a.shape[1], b.shape[2])
        return out.baddbmm_(a, b, beta=0, alpha=scale)


def heads_of(cut: Cut, z: Float[Tensor, "B H *n"]) -> list[tuple[slice, slice]]:
    """Examples and heads to be worked at together: so many that z of them fits into the room."""
    B, H = z.shape[:2]
    some = max(1, cut.room // max(1, z[0, :1].numel() * z.element_size())) if B and H else 1
    heads, examples = min(some, H), max(1, some // max(1, H))
    return [(b, h) for b in tiles(B, examples) for h in tiles(H, max(1, heads))]


def flat(index: Int[Tensor, "n *l"], T: int) -> Int[Tensor, "m"]:
    """The same places in [n T ..] flattened to one axis of n T rows."""
    if index.shape[0] == 1:
        return index.flatten()
    row = torch.arange(index.shape[0], device=index.device)
    return (row.view(-1, *[1] * (index.dim() - 1)) * T + index).flatten()
