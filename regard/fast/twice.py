"""Second derivatives of kernels that have a first one by hand."""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor

from regard.functional.rows import plain_alone

Made = TypeVar("Made", Tensor, tuple[Tensor, ...])


def twice_differentiable(
    fast: Callable[..., Made],
    plain: Callable[..., Made],
    *inputs: Tensor | None,
) -> Made:
    """fast(*inputs), where plain(*inputs) is the same function in operations that autograd can differentiate again.

    The first derivative is that of `fast`, which may be written by hand: autograd would take the tensors saved for it
    for constants. Where it is differentiated itself (create_graph=True), and under torch.func's transforms, `plain`
    takes its place, as in torch.export, which drops a backward by hand. Neither function may hold a tensor that needs a gradient and is
    not among the inputs.
    """
    if plain_alone():
        return plain(*inputs)
    y = fast(*inputs)
    if torch.compiler.is_compiling() or not _needs_gradient(inputs):
        return y
    if isinstance(y, Tensor):
        return _Twice.apply(plain, 1, y, *inputs)[0]
    return cast(Made, _Twice.apply(plain, len(y), *y, *inputs))


def by_autograd(
    plain: Callable[..., Made],
    inputs: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients of the inputs from those of plain(*inputs), differentiable themselves; None for inputs that need none."""
    # Aliases: an input that was made from another one is not differentiated through here.
    own = [z.view_as(z) if z is not None and z.requires_grad else z for z in inputs]
    y = plain(*own)
    made = (y,) if isinstance(y, Tensor) else y
    given = [(z, dz.to(z.dtype)) for z, dz in zip(made, gradients, strict=True) if dz is not None]
    given = [(z, dz) for z, dz in given if z.requires_grad]
    asked = [z for z in own if z is not None and z.requires_grad]
    if not given:
        return [None] * len(own)
    outputs, their = zip(*given, strict=True)
    found = iter(torch.autograd.grad(outputs, asked, their, create_graph=True, allow_unused=True))
    return [next(found) if z is not None and z.requires_grad else None for z in own]


def _needs_gradient(inputs: Sequence[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(z is not None and z.requires_grad for z in inputs)


class _Twice(torch.autograd.Function):
    """A fast kernel's outputs, unchanged; the plain form and the inputs are kept beside them."""

    @staticmethod
    def forward(ctx, plain, count: int, *tensors: Tensor | None):
        ctx.plain, ctx.count = plain, count
        ctx.save_for_backward(*tensors[count:])
        ctx.set_materialize_grads(False)
        return tuple(y.detach() for y in cast(tuple[Tensor, ...], tensors[:count]))

    @staticmethod
    def backward(ctx, *dy: Tensor | None):
        """Past the fast kernel or, where the result is to be differentiated again, through the plain form."""
        inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, None, *(None for _ in dy), *by_autograd(ctx.plain, inputs, dy)
        return None, None, *dy, *(None for _ in inputs)
