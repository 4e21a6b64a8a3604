"""Re(F x F) of rows without padding: the matrices F are symmetric, so that it is its own gradient, by real transforms alone."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.fourier import Norm
from regard.functional.rows import Form


def transform(
    x: Float[Tensor, "B T D"], *, mask: Mask = OPEN, norm: Norm = "backward", form: Form
) -> Float[Tensor, "B T D"]:
    y = _Transform.apply(x if x.dtype == torch.float64 else x.float())
    return (y if norm == "backward" else y / (x[0].numel() ** 0.5)).to(x.dtype)


def unfit(x: Tensor, *, mask: Mask = OPEN, norm: Norm, form: Form) -> str | None:
    return None if mask.valid is None else "rows have lengths of their own"


class _Transform(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        D = x.shape[2]
        half = torch.fft.rfft2(x, dim=(1, 2)).real
        middle = half.shape[2]
        mirrored = half[..., 1 : D - D // 2].flip(2)
        y = x.new_empty(x.shape)
        y[..., :middle] = half
        y[:, 0, middle:] = mirrored[:, 0]
        y[:, 1:, middle:] = mirrored[:, 1:].flip(1)
        return y

    @staticmethod
    def backward(ctx, dy: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return _Transform.apply(dy)
