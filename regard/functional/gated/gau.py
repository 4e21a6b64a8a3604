"""silu(u) * y, the gate of gated attention units, without a tensor of silu(u)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 64  # whose temporaries stay in cache


def gated(u: Float[Tensor, "*b T F"], y: Float[Tensor, "*b T F"]) -> Float[Tensor, "*b T F"]:
    """silu(u) y. The backward keeps u and y, and makes the gate again."""
    return _Gated.apply(u, y) if torch.is_grad_enabled() else F.silu(u).mul_(y)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, y):
        ctx.save_for_backward(u, y)
        return F.silu(u).mul_(y)

    @staticmethod
    @once_differentiable
    def backward(ctx, dz):
        u, y = ctx.saved_tensors
        du, dy = torch.empty_like(u), torch.empty_like(y)
        T = u.shape[-2]
        whole = u.device.type != "cpu" or torch.compiler.is_compiling()
        step = T if whole else ROWS
        for t in range(0, T, max(1, step)):
            u_t, y_t, dz_t = (x[..., t : t + step, :] for x in (u, y, dz))
            dy[..., t : t + step, :] = F.silu(u_t) * dz_t
            du[..., t : t + step, :] = torch.ops.aten.silu_backward(dz_t * y_t, u_t)
        return du, dy
