"""The warning for a model that is trained without `after_step` where that changes what it attends with."""

import warnings
from typing import Any

from regard.core.request import first_parameter

UPDATES = 10
"""Updates of a mixer's parameters without `after_step` of which nothing is said."""


def notice_update(mixer: Any) -> None:
    """Count updates of the mixer's parameters since the last `after_step`, and warn of many without one.

    Python's filter of warnings shows the text once, however many mixers of this name are in the model.
    """
    weight = first_parameter(mixer)
    if weight is None or weight.is_inference() or weight._version == mixer.updates[0]:
        return
    mixer.updates = (weight._version, mixer.updates[1] + 1)
    if mixer.updates[1] == UPDATES + 1:
        warnings.warn(
            f"{mixer.name} was trained for {UPDATES} updates without after_step(), where it changes what it attends "
            "with. Call regard.nn.after_step(model) after each optimiser step, or "
            "regard.nn.call_after_step(optimizer, model) once.",
            stacklevel=3,
        )
