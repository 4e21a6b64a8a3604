"""Layers whose weights are read, in another shape or in part, in the place of their call."""

from typing import TypeVar

from torch import nn

from regard.core.errors import UnsupportedError

Layer = TypeVar("Layer", bound=nn.Module)
OWN = nn.Linear.forward, nn.Conv1d.forward


def alone(layer: nn.Module) -> bool:
    """True where no adapter and no hook is around the layer, so that its weight is all that it does."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks
    return type(layer).forward in OWN and not any(hooks)


def read(who: str, layer: Layer) -> Layer:
    """The layer. Raises UnsupportedError where it is not alone."""
    if not alone(layer):
        raise UnsupportedError(
            f"{who} does not support a hook or an adapter around its {type(layer).__name__}: it reads the weight, and never calls "
            "the layer. Parametrise the weight (torch.nn.utils.parametrize), or leave this layer out."
        )
    return layer
