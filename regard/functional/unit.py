"""Vectors at unit norm, y = x / |x|, with dx = (dy - y (y dy)) / |x| computed where it stays in the cache."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

EPS = 1e-12  # the least norm that is divided by
ROWS = 2048  # vectors at once, on a CPU


def unit(x: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    return _Unit.apply(x)


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).to(x.dtype)
        y = (x / norm.clamp(min=EPS)).contiguous()
        ctx.save_for_backward(y, norm)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        y, norm = ctx.saved_tensors
        dx = torch.empty_like(y)
        parts = [z.reshape(-1, z.shape[-1]) for z in (y, norm, dy, dx)]
        near = y.device.type in ("cpu", "meta") and not torch.compiler.is_compiling()
        rows = ROWS if near else max(1, parts[0].shape[0])
        for some in zip(*(z.split(rows) for z in parts), strict=True):
            y, norm, dy, out = some
            along = (y * dy).sum(-1, keepdim=True).mul_(norm >= EPS)
            out.copy_(dy).addcmul_(y, along, value=-1).div_(norm.clamp(min=EPS))
        return dx
