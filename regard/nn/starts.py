"""Layers that start from other values than torch's, at construction and whenever their `reset_parameters` is called.

FSDP and torchtitan build on the meta device and call every module's `reset_parameters`, a layer's own after that of its
owner: so it is the layer that must know where it starts.
"""

import math

from torch import Tensor, nn


class Glorot(nn.Linear):
    """Glorot's uniform weights, and a constant bias. Made by `glorot`."""

    start: float

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.constant_(self.bias, self.start)


class NormalRows(nn.Embedding):
    """Rows from N(0, std^2). Made by `normal_rows`."""

    std: float

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)


def glorot(*linears: nn.Linear | None, bias: float = 0.0) -> None:
    """Start these layers as Glorot; None is passed by."""
    for linear in linears:
        if linear is not None:
            linear.__class__ = Glorot
            assert isinstance(linear, Glorot)
            linear.start = bias
            linear.reset_parameters()


def normal_rows(*tables: nn.Embedding, std: float) -> None:
    """Start these tables as NormalRows."""
    for table in tables:
        table.__class__ = NormalRows
        assert isinstance(table, NormalRows)
        table.std = std
        table.reset_parameters()


def glorot_matrices(*stacks: Tensor) -> None:
    """Glorot's uniform values for every matrix of stacks [.. rows columns]."""
    for stack in stacks:
        bound = math.sqrt(6 / (stack.shape[-2] + stack.shape[-1]))
        nn.init.uniform_(stack, -bound, bound)
