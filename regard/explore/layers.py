"""Every layer of a model: the calls of its mixers in one forward, with the readout of each.

A decoder of `regard.models.Transformer` moves valid target tokens to the front; its readouts are moved back.
"""

import inspect
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.core import Mixer, OptionError, UnsupportedError
from regard.core.options import Seed
from regard.core.request import compaction, restored_weights
from regard.explore.readout import Measure, Readout, readout
from regard.models import Transformer
from regard.models.generation import evaluating
from regard.nn.recorded import recorded


class Layer(NamedTuple):
    """A call of a mixer and what it attends with. path: the mixer's name in the model. time: number of the call, from 0."""

    path: str
    time: int
    mixer: Mixer
    cross: bool
    found: Readout


@torch.no_grad()
def layers(
    model: nn.Module,
    *args: Any,
    measure: Measure = "auto",
    probes: int | None = None,
    seed: Seed = 0,
    **kwargs: Any,
) -> list[Layer]:
    """The readout of each mixer's call in model(*args, **kwargs), in the order of the calls; the model is put in evaluation mode meanwhile.

    measure, probes, seed: as in `readout`. Raises OptionError for arguments that its forward does not take, UnsupportedError where the
    model has no mixer.
    """
    with evaluating(model):
        try:
            inspect.signature(model.forward).bind(*args, **kwargs)
        except TypeError as error:
            raise OptionError(
                f"{type(model).__name__}: {error}. Give what its forward takes."
            ) from None
        with recorded(model) as calls:
            model(*args, **kwargs)
        if not calls:
            raise UnsupportedError(
                f"layers does not support {type(model).__name__}: none of its mixers was called. "
                "HAN, DIN, AutoInt and MMoE have read, weights and attention_maps; regard.explore.page shows them."
            )
        moved = kwargs.get("target_valid") if isinstance(model, Transformer) else None
        read = []
        for path, time, mixer, x, context, mask, _ in calls:
            cross = context is not None
            found = readout(
                mixer, x, context=context, mask=mask, measure=measure, probes=probes, seed=seed
            )
            if moved is not None and path.startswith("decoder."):
                order = compaction(moved)
                values = restored_weights(found.values, order, None if cross else order)
                found = found._replace(values=values)
            read.append(Layer(path, time, mixer, cross, found))
        return read
