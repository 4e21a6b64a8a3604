"""Re(F x F) of rows without padding: the matrices F are symmetric, so that it is its own gradient."""

import torch
from torch import Tensor

from regard.core import Mask, Tokens
from regard.functional.fourier import Norm, transform as plain
from regard.functional.rows import Form


def transform(x: Tokens, *, mask: Mask, norm: Norm, form: Form) -> Tokens:
    return _Transform.apply(x, norm)


def unfit(x: Tensor, *, mask: Mask, norm: Norm, form: Form) -> str | None:
    return None if mask.valid is None else "rows have lengths of their own"


class _Transform(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, norm: Norm) -> Tensor:
        ctx.norm = norm
        return plain(x, norm=norm)

    @staticmethod
    def backward(ctx, dy: Tensor):
        return plain(dy, norm=ctx.norm), None
