"""Whole rows: `index_select` is far faster than `gather`, which moves single numbers. And how many heads fit into a cache."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

NUMBERS_ON_CPU = 1 << 18  # of a thread, in a tensor of some heads: 1 MiB


def near(z: Tensor) -> bool:
    """Whether few numbers at a time are better, as on a CPU; elsewhere a few large operations are."""
    return z.device.type in ("cpu", "meta") and not torch.compiler.is_compiling()


def heads_of(z: Float[Tensor, "B H T K"]) -> list[tuple[slice, slice]]:
    """Examples and heads to be worked at together, which stay in the cache on a CPU."""
    if not near(z):
        return [(slice(None), slice(None))]
    B, H, T, K = z.shape
    some = max(1, NUMBERS_ON_CPU * torch.get_num_threads() // max(1, T * K))
    heads, examples = min(some, H), max(1, some // H)
    return [
        (slice(b, b + examples), slice(h, h + heads))
        for b in range(0, B, examples)
        for h in range(0, H, heads)
    ]


def rows_at(z: Float[Tensor, "n T K"], index: Int[Tensor, "n l"]) -> Float[Tensor, "n l K"]:
    """z[n, index[n]]"""
    return z.flatten(0, 1).index_select(0, flat(index, z.shape[1])).unflatten(0, index.shape)


def flat(index: Int[Tensor, "n *l"], T: int) -> Int[Tensor, "m"]:
    """Of the rows of [n T ..] as one line of rows."""
    if index.shape[0] == 1:
        return index.flatten()
    row = torch.arange(index.shape[0], device=index.device)
    return (row.view(-1, *[1] * (index.dim() - 1)) * T + index).flatten()
