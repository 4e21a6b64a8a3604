"""CoordConv (Liu et al. 2018, arXiv 1807.03247): a convolution with coordinates among its input channels."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import CheckedModule, Count, OptionError
from regard.functional.positions.coordinates import coordinates

Pixels = int | tuple[int, int]
"""Pixels along both axes, or along rows and columns."""


class CoordConv2d(CheckedModule):
    """Conv2d over [x ; row' ; column' (; radius)], coordinates in [-1, 1].

    With zero weights on the extra channels it is Conv2d. Coordinates follow the input's size: another size than in
    training rescales them. in_channels: those of x, without the coordinates. out_channels, kernel_size, stride, padding and
    dilation, in pixels, are Conv2d's. Shapes: [B C H W] -> [B out_channels H' W'].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pixels,
        *,
        stride: Pixels = 1,
        padding: Count | tuple[Count, Count] | Literal["same", "valid"] = 0,
        dilation: Pixels = 1,
        bias: bool = True,
        radius: bool = False,
    ):
        if padding == "same" and stride not in (1, (1, 1)):
            raise OptionError(f'CoordConv2d: padding "same" needs a stride of 1, got {stride}')
        super().__init__()
        self.radius = radius
        self.conv = nn.Conv2d(
            in_channels + 2 + radius,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            bias=bias,
        )

    def forward(self, x: Float[Tensor, "B C height width"]) -> Float[Tensor, "B C2 height2 width2"]:
        height, width = x.shape[-2:]
        axes = (torch.arange(size, device=x.device) for size in (height, width))
        row, column = torch.meshgrid(*axes, indexing="ij")
        dtype = self.conv.weight.dtype
        where = coordinates(row, column, (height, width), radius=self.radius, dtype=dtype)
        where = where.movedim(-1, 0).expand(x.shape[0], -1, -1, -1)
        return self.conv(torch.cat([x, where], 1))
