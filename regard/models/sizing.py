"""Models of equal size: the feed-forward width that gives a configuration as many parameters as another."""

from dataclasses import replace
from typing import TypeVar

import torch

from regard.core import OptionError
from regard.mixers.build import build, option_names, resolve
from regard.models.config import Layer, ModelConfig, StackConfig

Config = TypeVar("Config", bound=StackConfig)


def count_parameters(config: ModelConfig) -> int:
    """Counts the trainable numbers of the model, on the meta device: nothing is allocated."""
    with torch.device("meta"):
        return sum(p.numel() for p in config.build().parameters() if p.requires_grad)


def match_parameters(
    config: Config, target: int, *, tolerance: float = 0.1, step: int = 8
) -> Config:
    """Returns the configuration with hidden_dim changed so that its parameter count is within `tolerance` of `target`.

    Counts are affine in hidden_dim: two are taken and the width solved for. A mixer that includes its feed-forward
    has a hidden_dim of its own, which is changed instead. `step`: the width is a multiple of it. Raises OptionError where no width will do.
    """
    low, high = 24 * config.dim, 48 * config.dim
    count_low = count_parameters(with_hidden_dim(config, low))
    slope = (count_parameters(with_hidden_dim(config, high)) - count_low) / (high - low)
    if slope <= 0:
        raise OptionError(f"{config.mixer_name}: hidden_dim does not change the parameter count")
    width = low + (target - count_low) / slope
    matched = with_hidden_dim(config, max(step, step * round(width / step)))
    count = count_parameters(matched)
    if abs(count - target) > tolerance * target:
        raise OptionError(
            f"{config.mixer_name}: no hidden_dim gives {target} parameters within {tolerance:.0%}; "
            f"the nearest has {count}. Change dim or num_layers."
        )
    return matched


def with_hidden_dim(config: Config, hidden_dim: int) -> Config:
    """hidden_dim of the feed-forward layers, or of the mixers where they include them."""
    if isinstance(config.mixer, tuple):
        layers = tuple(_widened(config, layer, hidden_dim) for layer in config.mixer)
        return replace(config, mixer=layers, hidden_dim=hidden_dim)
    layer = config.layers[0]
    widened = _widened(config, layer, hidden_dim)
    if widened is layer:
        return replace(config, hidden_dim=hidden_dim)
    return replace(config, mixer_options=widened.options)


def _widened(config: StackConfig, layer: Layer, hidden_dim: int) -> Layer:
    """The layer itself where the mixer does not include its feed-forward layer."""
    with torch.device("meta"):
        mixer = build(layer.mixer, **config.facts | dict(layer.options))
    if not mixer.capabilities.includes_ffn:
        return layer
    if "hidden_dim" not in option_names(resolve(layer.mixer)):
        raise OptionError(
            f"{mixer.name} includes its feed-forward layer and has no option hidden_dim to change"
        )
    return Layer(layer.mixer, {**layer.options, "hidden_dim": hidden_dim})
