"""Reversible residual layers (Gomez et al. 2017, arXiv 1707.04585; Kitaev et al. 2020, arXiv 2001.04451).

    y_1 = x_1 + f(x_2),   y_2 = x_2 + g(y_1)        f: norm and mixer, g: norm and feed-forward
    x_2 = y_2 - g(y_1),   x_1 = y_1 - f(x_2)

Only the last activations are stored; the backward pass computes the others from them, layer by layer, which costs one
more forward. Random numbers (dropout) and autocast are as they were. Not for layers whose forward changes their own
buffers (batch norm): it runs twice. Reconstruction loses digits with depth in 16 bits; keep the residual stream in 32.
"""

from collections.abc import Iterable
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import get_device_states, set_device_states

from regard.core import CheckedModule, OptionError, Tokens, UnsupportedError, in_parts
from regard.functional.held import in_modes, modes_of
from regard.functional.rows import autocast_dtype, plain_alone
from regard.nn.heads import alone

Pair = tuple[Tensor, Tensor]
"""Both streams."""
Merge = Literal["concat", "mean"]


class ReversibleBlock(CheckedModule):
    """(x_1, x_2) -> (y_1, y_2). Further arguments, such as a mask, go to f."""

    def __init__(self, f: nn.Module, g: nn.Module):
        super().__init__()
        self.f = f
        self.g = g

    def forward(self, x_1: Tensor, x_2: Tensor, *args: Any, **kwargs: Any) -> Pair:
        y_1 = x_1 + self.f(x_2, *args, **kwargs)
        return y_1, x_2 + self.g(y_1)

    def extend(self, x: Pair, state: Any, **options: Any) -> tuple[Pair, Any]:
        """Both streams of the next tokens, and the state after them of f, which has an `extend` too."""
        x_1, x_2 = x
        mixed, state = cast(Any, self.f).extend(x_2, state, **options)
        y_1 = x_1 + mixed
        return (y_1, x_2 + self.g(y_1)), state


class ReversibleSequence(CheckedModule):
    """x [B T D] -> [B T 2D] (`merge="concat"`, as in the official code) or [B T D] (`"mean"`), both streams starting as x.

    In training the activations of the layers are not stored. `recompute=False` stores them, as do hooks on a block and a forward of its own: the same function.
    Arguments beyond x go to every f and receive no gradient.
    """

    def __init__(
        self, blocks: Iterable[ReversibleBlock], *, merge: Merge = "concat", recompute: bool = True
    ):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.merge = merge
        self.recompute = recompute

    def forward(self, x: Tokens, *args: Any, **kwargs: Any) -> Tensor:
        """The last of both streams, joined. Raises OptionError for arguments beyond x that want a gradient, where blocks are computed again."""
        again = self.recompute and torch.is_grad_enabled() and not plain_alone()
        known = all(alone(block, (ReversibleBlock.forward,)) for block in self.blocks)
        if again and known and not in_parts(self.blocks):
            leaves = tree_leaves((args, kwargs))
            if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves):
                raise OptionError(
                    "a reversible sequence gives no gradient to arguments beyond x: detach them, or build it with recompute=False"
                )
            held = dict(self.blocks.named_parameters(remove_duplicate=False))
            y_1, y_2 = _Reversible.apply(x, x, self.blocks, args, kwargs, [*held], *held.values())
        else:
            y_1 = y_2 = x
            for block in self.blocks:
                y_1, y_2 = block(y_1, y_2, *args, **kwargs)
        return self.merged(y_1, y_2)

    def merged(self, y_1: Tokens, y_2: Tokens) -> Tensor:
        return torch.cat([y_1, y_2], -1) if self.merge == "concat" else (y_1 + y_2) / 2


class _Reversible(torch.autograd.Function):
    """Parameters are arguments so that their gradients are returned, and not written behind autograd's back; those of the forward are computed with again."""

    @staticmethod
    def forward(ctx, x_1, x_2, blocks, args, kwargs, names, *parameters):
        ctx.blocks = blocks
        ctx.args = args
        ctx.kwargs = kwargs
        ctx.names = names
        ctx.held = dict(zip(names, parameters, strict=True))
        ctx.held |= blocks.named_buffers(remove_duplicate=False)
        ctx.autocast = autocast_dtype(x_1)
        ctx.modes = modes_of(blocks)
        ctx.random = []  # before f, and before g, of every block
        for block in blocks:
            before_f = _random(x_1)
            x_1 = x_1 + block.f(x_2, *args, **kwargs)
            ctx.random.append((before_f, _random(x_1)))
            x_2 = x_2 + block.g(x_1)
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
        gradients: dict[str, Tensor] = {}

        def again(
            name: str, f: nn.Module, random: Any, x: Tensor, d: Tensor, *args: Any, **kwargs: Any
        ):
            """f(x, ..) as it was computed before, and the gradient of x; those of f's parameters join `gradients`."""
            _restore(random, x)
            x, kind = x.detach().requires_grad_(), x.device.type
            own = {n: z for n, z in ctx.held.items() if n.startswith(name)}
            inside = {n.removeprefix(name): z for n, z in own.items()}
            with torch.enable_grad(), torch.autocast(kind, ctx.autocast, ctx.autocast is not None):
                y = functional_call(f, inside, (x, *args), kwargs)
            asked = {z: n for n, z in own.items() if z.requires_grad}  # one that is shared, once
            dx, *found = torch.autograd.grad(y, (x, *asked), d.type_as(y), allow_unused=True)
            gradients.update(zip(asked.values(), found, strict=True))
            return y.detach(), 0 if dx is None else dx

        now = _random(y_1)
        with in_modes(ctx.modes):
            for place in reversed(range(len(ctx.blocks))):
                block, (before_f, before_g) = ctx.blocks[place], ctx.random[place]
                out, d = again(f"{place}.g.", block.g, before_g, y_1, d_2)
                y_2, d_1 = y_2 - out, d_1 + d
                out, d = again(f"{place}.f.", block.f, before_f, y_2, d_1, *ctx.args, **ctx.kwargs)
                y_1, d_2 = y_1 - out, d_2 + d
        _restore(now, y_1)
        return d_1, d_2, None, None, None, None, *map(gradients.get, ctx.names)


def _random(x: Tensor) -> tuple[Tensor, Any]:
    """States of torch's own generators, of the CPU and of x's device."""
    return torch.get_rng_state(), get_device_states(x)


def _restore(state: tuple[Tensor, Any], x: Tensor) -> None:
    cpu, (devices, states) = state
    torch.set_rng_state(cpu)
    set_device_states(devices, states, device_type=x.device.type)
