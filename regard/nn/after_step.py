"""Updates after an optimiser step (centroids, random features), for a whole model.

after_step(model)                        in a loop of your own, after optimizer.step()
call_after_step(optimizer, model)        once, before training: the optimiser calls it after each of its steps
"""

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from regard.core import Mixer, OptionError


def after_step(model: nn.Module) -> None:
    """Call `after_step` of every mixer in the model, once each, wherever it is and whatever wraps the model."""
    for module in model.modules():
        if isinstance(module, Mixer):
            module.after_step()


def call_after_step(optimizer: Any, model: nn.Module) -> RemovableHandle:
    """Let the optimiser call `after_step(model)` after each of its own steps; `.remove()` of the result ends that.

    optimizer: torch's, or one that wraps it as `optimizer` (Accelerate's: steps that it skips are no steps).
    Raises OptionError where the optimiser is none of torch's, or the model no module.
    """
    inner = optimizer
    while not hasattr(inner, "_optimizer_step_post_hooks") and hasattr(inner, "optimizer"):
        inner = inner.optimizer
    if not isinstance(inner, torch.optim.Optimizer):
        raise OptionError(
            f"call_after_step: optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}"
        )
    if not isinstance(model, nn.Module):
        raise OptionError(f"call_after_step: model must be a module, got {type(model).__name__}")
    return inner.register_step_post_hook(lambda *_: after_step(model))
