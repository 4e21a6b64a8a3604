"""Parameters, buffers and modes as a forward has them, for what its backward computes again: by then `functional_call` has put others in their place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.utils.stateless import _reparametrize_module

from regard.core import in_parts

Modes = dict[nn.Module, bool]


def with_own(f: Callable) -> Callable:
    """f, a module or a method of one, with the parameters, buffers and modes that the module has now; those of FSDP are other tensors in a backward, and stay."""
    if is_compiling():
        return f
    module: Any = getattr(f, "__self__", f)
    given, modes = _held(module), modes_of(module)

    def call(*arguments: Any, **options: Any) -> Any:
        kept = in_parts(module) or all(given[name] is z for name, z in _held(module).items())
        with in_modes(modes), nullcontext() if kept else _reparametrize_module(module, given):
            return f(*arguments, **options)

    return call


def modes_of(module: nn.Module) -> Modes:
    return {part: part.training for part in module.modules()}


@contextmanager
def in_modes(modes: Modes) -> Iterator[None]:
    """While open, each module is in its mode of then."""
    now = {part: part.training for part in modes}
    try:
        for part, training in modes.items():
            part.training = training
        yield
    finally:
        for part, training in now.items():
            part.training = training


def _held(module: nn.Module) -> dict[str, Tensor]:
    parameters = module.named_parameters(remove_duplicate=False)
    return dict(parameters) | dict(module.named_buffers(remove_duplicate=False))


def as_now(module: Any) -> Any:
    """The module with the parameters and buffers that it has now, for tiles, which read them."""
    if not torch.is_grad_enabled() or is_compiling():
        return module
    now = copy(module)
    now._parameters, now._buffers = dict(module._parameters), dict(module._buffers)
    now._modules = {name: as_now(part) for name, part in module._modules.items()}
    return now
