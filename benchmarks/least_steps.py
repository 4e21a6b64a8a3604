"""The indispensable operators of a one-token step on ready tensors: what a step in PyTorch cannot go below.

Four projections of the width, the fewest operators that move the state and read it, nothing of ours between them. Weights
are plain tensors, for a call of nn.Linear alone takes a third more. Batch 1; positions, checks and lengths are left out.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Mix = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v [H 1 K] -> [H 1 K]


def least_step(name: str, x: Tensor, num_heads: int, context: int) -> Callable[[], None] | None:
    """One step of this mixer at its default options on x [1 1 D]; None where nothing was written for it."""
    if name not in _MIXES:
        return None
    D = x.shape[-1]
    mix = _MIXES[name](num_heads, D // num_heads, context)
    query, key, value, out = (torch.randn(D, D) * D**-0.5 for _ in range(4))

    def run() -> None:
        q, k, v = (F.linear(x, w).view(num_heads, 1, -1) for w in (query, key, value))
        F.linear(mix(q, k, v).view(1, 1, D), out)

    return run


def _linear(H: int, K: int, context: int) -> Mix:
    S, z = torch.ones(H, K, K), torch.ones(H, 1, K)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = F.elu(q).add_(1), F.elu(k).add_(1)
        S.addcmul_(k.mT, v)
        z.add_(k)
        return torch.bmm(q, S).div_(torch.bmm(q, z.mT))

    return mix


def _efficient(H: int, K: int, context: int) -> Mix:
    S, z, m = torch.ones(H, K, K), torch.ones(H, 1, K), torch.zeros(H, 1, K)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        top = torch.maximum(m, k)
        e, shrink = (k - top).exp_(), (m - top).exp_()
        torch.addcmul(e, z, shrink, out=z)
        S.mul_(shrink.mT).addcmul_(e.mT, v)
        return torch.bmm(q.softmax(-1).div_(z), S)

    return mix


def _rfa(H: int, K: int, context: int, M: int = 64) -> Mix:
    S, z, w = torch.ones(H, 2 * M, K), torch.ones(H, 1, 2 * M), torch.randn(H, K, M)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        both = torch.cat([q, k], dim=1)
        wx = torch.bmm(both.div_(both.norm(dim=-1, keepdim=True)), w)
        q, k = torch.cat([wx.sin(), wx.cos()], dim=-1).split(1, dim=1)
        S.addcmul_(k.mT, v)
        z.add_(k)
        return torch.bmm(q, S).div_(torch.bmm(q, z.mT))

    return mix


def _performer(H: int, K: int, context: int, M: int = 256) -> Mix:
    S, z, w, c = torch.ones(H, M, K), torch.ones(H, 1, M), torch.randn(M, K), torch.ones(H, 1, 1)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wx = F.linear(torch.cat([q, k], dim=1), w)
        half = torch.linalg.vecdot(k, k)[..., None]
        torch.maximum(c, wx[:, 1:].amax(-1, keepdim=True) - half, out=c)
        q = torch.softmax(wx[:, :1], dim=-1)  # its factor cancels
        k = (wx[:, 1:] - (half + c)).exp_()
        S.addcmul_(k.mT, v)  # a maximum that does not move
        z.add_(k)
        return torch.bmm(q, S).div_(torch.bmm(q, z.mT))

    return mix


def _softmax(H: int, K: int, context: int) -> Mix:
    keys, values = torch.randn(2, 1, H, context + 1, K)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys[0, :, -1:], values[0, :, -1:] = k, v
        return F.scaled_dot_product_attention(q[None], keys, values)

    return mix


_MIXES: dict[str, Callable[[int, int, int], Mix]] = {
    "efficient": _efficient,
    "linear": _linear,
    "local": lambda H, K, context: _softmax(H, K, min(context, 128)),
    "performer": _performer,
    "rfa": _rfa,
    "softmax": _softmax,
}
