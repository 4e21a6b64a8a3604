"""Reversible residual layers (Gomez et al. 2017, arXiv 1707.04585; Kitaev et al. 2020, arXiv 2001.04451).

    y_1 = x_1 + f(x_2),   y_2 = x_2 + g(y_1)        f: norm and mixer, g: norm and feed-forward
    x_2 = y_2 - g(y_1),   x_1 = y_1 - f(x_2)

Only the last activations are stored; the backward pass computes the others from them, layer by layer, which costs one
more forward. Random numbers (dropout) and autocast are as they were. Not for layers whose forward changes their own
buffers (batch norm): it runs twice. Reconstruction loses digits with depth in 16 bits; keep the residual stream in 32.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from regard.core.errors import OptionError, UnsupportedError
from regard.functional.rows import plain_alone

Merge = Literal["concat", "mean"]


class ReversibleBlock(nn.Module):
    """(x_1, x_2) -> (y_1, y_2). Further arguments, such as a mask, go to f."""

    def __init__(self, f: nn.Module, g: nn.Module):
        super().__init__()
        self.f, self.g = f, g

    def forward(self, x_1: Tensor, x_2: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        y_1 = x_1 + self.f(x_2, *args, **kwargs)
        return y_1, x_2 + self.g(y_1)


class ReversibleSequence(nn.Module):
    """x [B T D] -> [B T 2D] (`merge="concat"`, as in the official code) or [B T D] (`"mean"`), both streams starting as x.

    In training the activations of the layers are not stored. `recompute=False` stores them: the same function.
    Arguments beyond x go to every f and receive no gradient.
    """

    def __init__(
        self, blocks: Iterable[ReversibleBlock], *, merge: Merge = "concat", recompute: bool = True
    ):
        super().__init__()
        if merge not in ("concat", "mean"):
            raise OptionError(f"merge ({merge!r}) must be concat or mean")
        self.blocks = nn.ModuleList(blocks)
        self.merge, self.recompute = merge, recompute

    def forward(self, x: Float[Tensor, "B T D"], *args: Any, **kwargs: Any) -> Tensor:
        if self.recompute and torch.is_grad_enabled() and not plain_alone():
            _check_arguments(args, kwargs)
            parameters = [p for p in self.blocks.parameters() if p.requires_grad]
            y_1, y_2 = _Reversible.apply(x, x, self.blocks, args, kwargs, *parameters)
        else:
            y_1 = y_2 = x
            for block in self.blocks:
                y_1, y_2 = block(y_1, y_2, *args, **kwargs)
        return self.merged(y_1, y_2)

    def merged(self, y_1: Float[Tensor, "B T D"], y_2: Float[Tensor, "B T D"]) -> Tensor:
        return torch.cat([y_1, y_2], dim=-1) if self.merge == "concat" else (y_1 + y_2) / 2


class _Reversible(torch.autograd.Function):
    """Parameters are arguments so that their gradients are returned, and not written behind autograd's back."""

    @staticmethod
    def forward(ctx, x_1, x_2, blocks, args, kwargs, *parameters):
        ctx.blocks, ctx.args, ctx.kwargs = blocks, args, kwargs
        ctx.parameters = parameters
        ctx.autocast = _Autocast.now(x_1.device.type)
        ctx.random = []  # before f, and before g, of every block
        for block in blocks:
            before_f = _Random.now(x_1)
            x_1 = x_1 + block.f(x_2, *args, **kwargs)
            before_g = _Random.now(x_1)
            x_2 = x_2 + block.g(x_1)
            ctx.random.append((before_f, before_g))
        ctx.save_for_backward(x_1, x_2)
        return x_1, x_2

    @staticmethod
    def backward(ctx, d_1, d_2):
        if torch.is_grad_enabled():
            raise UnsupportedError(
                "a reversible sequence gives no second derivative (create_graph=True): it computes its activations back, "
                "which autograd does not see. Build it with recompute=False, which stores them"
            )
        y_1, y_2 = ctx.saved_tensors
        gradients: dict[Tensor, Tensor] = {}
        now = _Random.now(y_1)
        for block, (before_f, before_g) in zip(
            reversed(ctx.blocks), reversed(ctx.random), strict=True
        ):
            out, d = ctx.autocast.run(before_g, block.g, block.g, y_1, d_2, gradients)
            y_2, d_1 = y_2 - out, d_1 + d
            call = partial(_call, block.f, ctx.args, ctx.kwargs)
            out, d = ctx.autocast.run(before_f, call, block.f, y_2, d_1, gradients)
            y_1, d_2 = y_1 - out, d_2 + d
        now.restore()
        return d_1, d_2, None, None, None, *(gradients.get(p) for p in ctx.parameters)


def _call(f: nn.Module, args: tuple, kwargs: dict[str, Any], x: Tensor) -> Tensor:
    return f(x, *args, **kwargs)


def _check_arguments(args: tuple, kwargs: dict[str, Any]) -> None:
    tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
    if any(leaf.requires_grad for leaf in tensors):
        raise OptionError(
            "a reversible sequence gives no gradient to arguments beyond x: detach them, or build it with recompute=False"
        )


class _Autocast(NamedTuple):
    device: str
    enabled: bool
    dtype: torch.dtype | None

    @classmethod
    def now(cls, device: str) -> "_Autocast":
        if not torch.amp.is_autocast_available(device):
            return cls(device, False, None)
        return cls(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))

    def run(
        self,
        random: "_Random",
        call: Callable[[Tensor], Tensor],
        module: nn.Module,
        x: Tensor,
        d: Tensor,
        gradients: dict[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """call(x) as it was computed before, and the gradient of x; those of the module's parameters join `gradients`."""
        random.restore()
        parameters = [p for p in module.parameters() if p.requires_grad]
        x = x.detach().requires_grad_()
        with torch.enable_grad(), torch.autocast(self.device, self.dtype, enabled=self.enabled):
            y = call(x)
        found = torch.autograd.grad(y, (x, *parameters), d.to(y.dtype), allow_unused=True)
        for parameter, new in zip(parameters, found[1:], strict=True):
            if new is not None:
                old = gradients.get(parameter)
                gradients[parameter] = new if old is None else old + new
        return y.detach(), torch.zeros_like(x) if found[0] is None else found[0]


class _Random(NamedTuple):
    """States of torch's own generators."""

    cpu: Tensor
    cuda: Tensor | None
    device: torch.device

    @classmethod
    def now(cls, x: Tensor) -> "_Random":
        cuda = torch.cuda.get_rng_state(x.device) if x.is_cuda else None
        return cls(torch.get_rng_state(), cuda, x.device)

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)
