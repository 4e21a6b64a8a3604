"""Updates after an optimiser step (centroids, random features), for a whole model.

after_step(model)                        in a loop of your own, after optimizer.step()
call_after_step(optimizer, model)        once, before training: the optimiser calls it after each of its steps

Both take `group`, where several processes train: those over which the data are split.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from regard.core import OptionError, shown
from regard.nn.centroids import Centroids
from regard.nn.recorded import outermost


def after_step(model: nn.Module, group: Any = None) -> None:
    """Call `after_step` of every mixer in the model, once each, wherever it is and whatever wraps the model.

    group: the processes over which the data are split. Each of them makes this call, and what their centroids counted is
    added up: processes that hold the same data (those of tensor parallel) belong to different groups, or it is counted
    twice. None: the group of the DistributedDataParallel that wraps the model or a part of it. In a single process, and
    in a model without centroids, nothing is communicated.

    Raises OptionError for None where several processes run, no DistributedDataParallel is in the model, and centroids
    are; and for a group that this process is not part of.
    """
    counted = [module for module in model.modules() if isinstance(module, Centroids)]
    if group is None:
        group = _group(model, bool(counted))
    elif not isinstance(group, dist.ProcessGroup):
        raise OptionError(
            "after_step: group must be a torch.distributed.ProcessGroup that this process is part of, got "
            f"{shown(group)}"
        )
    if group is not None:
        for centroids in counted:
            for staged in centroids.since_update():
                dist.all_reduce(staged, group=group)
    for _, mixer in outermost(model):
        mixer.after_step()


def call_after_step(
    optimizer: Any, model: nn.Module, group: "dist.ProcessGroup | None" = None
) -> RemovableHandle:
    """Let the optimiser call `after_step(model, group)` after each of its own steps; `.remove()` of the result ends that.

    optimizer: torch's, or one that wraps it as `optimizer` (Accelerate's: steps that it skips are no steps).
    Raises OptionError where the optimiser is none of torch's, or the model no module.
    """
    inner = optimizer
    while not hasattr(inner, "_optimizer_step_post_hooks") and hasattr(inner, "optimizer"):
        inner = inner.optimizer
    if not isinstance(inner, torch.optim.Optimizer):
        raise OptionError(
            f"call_after_step: optimizer must be a torch.optim.Optimizer, got {shown(optimizer)}"
        )
    return inner.register_step_post_hook(lambda *_: after_step(model, group))


def _group(model: nn.Module, counted: bool) -> "dist.ProcessGroup | None":
    """The group of the model's DistributedDataParallel; None where there is nothing to add up."""
    if not counted or not dist.is_available() or not dist.is_initialized():
        return None
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            return module.process_group
    if dist.get_world_size() == 1:
        return None
    raise OptionError(
        f"after_step cannot tell which of {dist.get_world_size()} processes hold different data, whose counts centroids add "
        "up. Pass group=, the processes over which the data are split: torch.distributed.group.WORLD if all of them do, or "
        "this process's of torch.distributed.new_subgroups(group_size=1) if each holds all the data."
    )
