"""The warning for a model that is trained without `after_step` where that changes what it attends with."""

import sys
import warnings
from typing import Any

from torch import nn

from regard.core.request import first_parameter

UPDATES = 10
"""Updates of a mixer's parameters without `after_step` of which nothing is said."""


def notice_update(mixer: Any) -> None:
    """Count updates of the mixer's parameters since the last `after_step`, and warn of many without one, once for each model."""
    weight = first_parameter(mixer)
    if weight is None or weight.is_inference() or weight._version == mixer.updates[0]:
        return
    mixer.updates = (weight._version, mixer.updates[1] + 1)
    if mixer.updates[1] == UPDATES + 1:
        for other in _around(mixer):
            other.updates = (other.updates[0], UPDATES + 1)
        warnings.warn(
            f"{mixer.name} was trained for {UPDATES} updates without after_step(), where it changes what it attends "
            "with. Call regard.nn.after_step(model) after each optimiser step, or "
            "regard.nn.call_after_step(optimizer, model) once.",
            stacklevel=3,
        )


def _around(mixer: Any) -> list[Any]:
    """The mixers of the model that this one is in: the outermost module whose method led to this call."""
    found, frame = [mixer], sys._getframe().f_back
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module):
            mixers = [
                module for module in caller.modules() if hasattr(module, "changes_after_step")
            ]
            found = mixers if mixer in mixers else found
        frame = frame.f_back
    return found
