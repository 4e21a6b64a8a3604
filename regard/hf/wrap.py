"""Models of Regard, and models of Transformers with another mechanism, as models of Transformers; their Auto classes."""

import copy
from collections.abc import Collection
from typing import Any

from torch import distributed as dist, nn
from transformers import AutoConfig, PreTrainedModel, TrainerCallback
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from regard.core import UnsupportedError, Whole
from regard.hf.config import STACK, RegardConfig
from regard.hf.convert import converted
from regard.hf.load import load
from regard.hf.models import WRAPPERS, RegardForCausalLM, RegardModel, wrapper_of
from regard.hf.stack import Stack
from regard.models.config import AnyMixer, ModelConfig
from regard.nn import after_step

MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["regard"] = RegardForCausalLM.__name__
"""Where Trainer's label smoothing looks whether labels are to be shifted, and pipelines what they know."""


def wrap(model: ModelConfig | nn.Module) -> RegardModel:
    """Returns a model of Regard, or a new one of this configuration, for Transformers' loops and files.

    Takes a stack with the head of a language model, too, as `load` gives.
    Raises UnsupportedError for any other model, OptionError for mixers that are classes: a file can hold names alone.
    """
    if isinstance(model, Stack):
        wrapper = wrapper_of(model, STACK)
        if model.origin is None or wrapper is None:
            raise UnsupportedError(
                "wrap does not support this stack: it has no head of a language model, or load did not make it so"
            )
        return wrapper(RegardConfig.of_stack(model.origin), model)
    inside = model if isinstance(model, nn.Module) else None
    config = model if inside is None else getattr(model, "config", None)
    if not isinstance(config, ModelConfig) or config.name not in WRAPPERS:
        raise UnsupportedError(
            f"wrap does not support {type(model).__name__}: it takes {', '.join(WRAPPERS)}"
        )
    return WRAPPERS[config.name](RegardConfig.of(config), inside)


def convert(
    model: nn.Module,
    mixer: AnyMixer,
    *,
    max_len: int | None = None,
    layers: Collection[Whole] | None = None,
    **options: Any,
) -> Any:
    """Returns a copy of the model around this mechanism, with the projections, norms and feed-forward layers that it had.

    Of a stack that `load` gave, a stack. Of a language model of Transformers whose kind `load` reads, or one that `wrap` put
    around a stack, a model for Transformers: logits, `generate` at the mechanism's own cost, save_pretrained.

    max_len: a table of positions that is shorter is tiled (Beltagy et al. 2020, arXiv 2004.05150). layers: the numbers of
    those that are changed, from 0 on; all by default. Fewer key and value heads are repeated where the mechanism has none
    of its own, which changes nothing. Rotary positions turn queries and keys before the mechanism sees them. Raises
    UnsupportedError, with the reason, for a mechanism that cannot take over the projections, the positions or the direction,
    and OptionError for layers that there are not.
    """
    change = mixer, max_len, layers, options
    if not isinstance(model, PreTrainedModel):
        return converted(model, *change)
    if isinstance(model, RegardModel):
        stack = model.inside
    else:
        stack = load(model.state_dict(), model.config.to_dict())
    made = wrap(converted(stack if isinstance(stack, Stack) else model, *change))
    if isinstance(made, RegardForCausalLM):
        if not model.can_generate():
            raise UnsupportedError(
                f"convert does not support {type(model).__name__}: it has no head of a language model"
            )
        made.generation_config = copy.deepcopy(model.generation_config)
        made.generation_config.use_cache = made.streams
    return made.train(model.training)


def register_models() -> None:
    """Make the Auto classes know what `save_pretrained` of these models wrote."""
    AutoConfig.register("regard", RegardConfig, exist_ok=True)
    for cls in WRAPPERS.values():
        cls.auto.register(RegardConfig, cls, exist_ok=True)


class AfterStep(TrainerCallback):
    """Calls `after_step` of every mixer once after each optimiser step of a Trainer, which splits data over all processes."""

    def on_optimizer_step(self, args, state, control, model=None, **unused):
        split = dist.is_available() and getattr(args, "parallelism_config", None) is None
        after_step(model, dist.group.WORLD if split else None)
