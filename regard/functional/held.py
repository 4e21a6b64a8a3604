"""Parameters as a forward has them, for what its backward computes again: by then `functional_call` has put others in their place."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.nn.utils.stateless import _reparametrize_module


def with_own(f: Callable) -> Callable:
    """f, a module or a method of one, with the parameters that the module has now; those of FSDP are other tensors in a backward, and stay."""
    if is_compiling():
        return f
    module: Any = getattr(f, "__self__", f)
    given = dict(module.named_parameters(remove_duplicate=False))

    def call(*arguments: Any, **options: Any) -> Any:
        changed = any(z is not given.get(name) for name, z in module.named_parameters())
        in_parts = any(hasattr(part, "unshard") for part in module.modules())
        with _reparametrize_module(module, given) if changed and not in_parts else nullcontext():
            return f(*arguments, **options)

    return call


def as_now(module: Any) -> Any:
    """The module with the parameters that it has now, for tiles, which read them."""
    if not torch.is_grad_enabled() or is_compiling():
        return module
    now = copy(module)
    now._parameters = dict(module._parameters)
    now._modules = {name: as_now(part) for name, part in module._modules.items()}
    return now
