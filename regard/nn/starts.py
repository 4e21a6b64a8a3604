"""Layers that start from other values than torch's, at construction and whenever their `reset_parameters` is called.

FSDP and torchtitan build on the meta device and call every module's `reset_parameters`, a layer's own after that of its
owner: so it is the layer that must know where it starts.
"""

import torch
from torch import Tensor, nn

from regard.nn.norm import RMSNorm


def unset(*shape: int) -> nn.Parameter:
    """A parameter of this shape, whose numbers `reset_parameters` sets."""
    return nn.Parameter(torch.empty(shape))


class Glorot(nn.Linear):
    """Glorot's uniform weights, and a constant bias, if it has one: from when `glorot` has said which. Until then it is torch's layer."""

    start: float | None = None

    def __init__(self, dim: int, width: int, *, bias: bool = False):
        super().__init__(dim, width, bias)

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


def glorot(module: nn.Module, *, bias: float = 0.0) -> None:
    """Start the layers in this module that are made as Glorot, and not yet started, from its weights."""
    for layer in module.modules():
        if isinstance(layer, Glorot) and layer.start is None:
            layer.start = bias
            layer.reset_parameters()


def projection(
    dim: int, width: int, rank: int | None = None, *, bias: float | None = None, norm: bool = False
) -> nn.Module:
    """Glorot's layer to `width` channels, through `rank` of them (None: of full rank), which a norm may follow. bias: its start; None: there is none."""
    last = Glorot(rank or dim, width, bias=bias is not None)
    through = [] if rank is None else [Glorot(dim, rank), *[RMSNorm(rank)] * norm]
    layer = nn.Sequential(*through, last) if through else last
    glorot(layer, bias=bias or 0.0)
    return layer


def normal_rows(*tables: nn.Module, std: float) -> None:
    """Start these tables, made as NormalRows, from N(0, std^2)."""
    for table in tables:
        assert isinstance(table, NormalRows)
        table.std = std
        table.reset_parameters()


def normal(*shape: int, seed: int | None) -> Tensor:
    """Standard normal values, drawn once for a buffer; without a seed they come from torch's own generator."""
    if seed is None:
        return torch.randn(*shape)
    drawn = torch.randn(*shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return drawn.to(torch.get_default_device())


def uniform(values: Tensor, inputs: int) -> None:
    """Uniform values within 1 / sqrt(inputs), from which torch's layers of so many inputs start."""
    bound = inputs**-0.5
    nn.init.uniform_(values, -bound, bound)


def glorot_matrices(*stacks: Tensor) -> None:
    """Glorot's uniform values for every matrix of stacks [.. rows columns]."""
    for stack in stacks:
        bound = (6 / sum(stack.shape[-2:])) ** 0.5
        nn.init.uniform_(stack, -bound, bound)
