"""Shared by the oracles of GAU, FLASH and mixed chunks (arXiv 2202.10447)."""

from torch import Tensor

from regard.reference._rows import Row


def silu(a: Tensor) -> Tensor:
    return a / (1 + (-a).exp())


def share(options, row: Row, i: int) -> float:
    """The factor of the linear part for query i."""
    C = options["chunk_size"]
    summed = i // C * C if row.causal else row.T
    if options["lin_norm"] == "n":
        return 1 / options["max_len"]
    if options["lin_norm"] == "chunk" and row.causal:
        return 1 / C
    return 1 / max(1, summed)
