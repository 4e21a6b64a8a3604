"""RegardConfig: config.json of our models, in Transformers' format."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from transformers import PretrainedConfig

from regard.core import OptionError, check_option

Settings = Mapping[str, Any]  # a config, or what a saved stack is made of
STACK = "stack"
"""`model` of the configs of stacks that `regard.hf.load` gave; their settings are `Stack.origin`."""
FACTS = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads max_position_embeddings bos_token_id eos_token_id "
    "pad_token_id"
).split()
"""Fields of a checkpoint's config that Transformers' loops and other programs read."""


class RegardConfig(PretrainedConfig):
    """`model`: the name of one of MODELS, or STACK; `settings`: the fields of its configuration."""

    model_type = "regard"

    def __init__(self, model: str = "", settings: Settings | None = None, **others: Any):
        check_option("RegardConfig", "model", model, str)
        check_option("RegardConfig", "settings", settings, Settings | None)
        self.model = model
        self.settings = dict(settings or {})
        source = self.settings.get("config", {})  # of a stack
        check_option("RegardConfig", "settings.config", source, Settings)
        facts = {name: source[name] for name in FACTS if source.get(name) is not None}
        self.vocab_size = self.settings.get("vocab_size")
        super().__init__(**{"tie_word_embeddings": False, **facts, **others})

    @classmethod
    def of(cls, config: Any) -> "RegardConfig":
        """Raises OptionError for mixers that are classes."""
        settings = asdict(config)
        _check_names(layer.mixer for layer in config.layers)
        others = {"num_labels": settings["num_classes"]} if "num_classes" in settings else {}
        return cls(config.name, settings, **others)

    @classmethod
    def of_stack(cls, origin: Settings) -> "RegardConfig":
        """Raises OptionError for mixers that are classes."""
        _check_names(change["mixer"] for change in origin["conversions"])
        return cls(STACK, origin)


def _check_names(mixers: Any) -> None:
    for mixer in mixers:
        if not isinstance(mixer, str):
            raise OptionError(
                f"a file can hold the name of a mixer and not the class {mixer.__name__}: pass a name of MIXERS"
            )
