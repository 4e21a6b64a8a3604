"""Layers that start from other values than torch's, at construction and whenever their `reset_parameters` is called.

FSDP and torchtitan build on the meta device and call every module's `reset_parameters`, a layer's own after that of its
owner: so it is the layer that must know where it starts.
"""

import math

from torch import Tensor, nn


class Glorot(nn.Linear):
    """Glorot's uniform weights, and a constant bias: from when `glorot` has said which. Until then it is torch's layer."""

    start: float | None = None

    def reset_parameters(self) -> None:
        if self.start is None:
            return super().reset_parameters()
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.constant_(self.bias, self.start)


class NormalRows(nn.Embedding):
    """Rows from N(0, std^2): from when `normal_rows` has said std. Until then it is torch's layer."""

    std: float = 1.0

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)


def glorot(*linears: nn.Linear | None, bias: float = 0.0) -> None:
    """Start these layers, made as Glorot, from its weights; None is passed by."""
    for linear in linears:
        if linear is not None:
            assert isinstance(linear, Glorot)
            linear.start = bias
            linear.reset_parameters()


def normal_rows(*tables: nn.Embedding, std: float) -> None:
    """Start these tables, made as NormalRows, from N(0, std^2)."""
    for table in tables:
        assert isinstance(table, NormalRows)
        table.std = std
        table.reset_parameters()


def glorot_matrices(*stacks: Tensor) -> None:
    """Glorot's uniform values for every matrix of stacks [.. rows columns]."""
    for stack in stacks:
        bound = math.sqrt(6 / (stack.shape[-2] + stack.shape[-1]))
        nn.init.uniform_(stack, -bound, bound)
