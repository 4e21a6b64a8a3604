"""Regard's own models in the format of Transformers: save_pretrained, from_pretrained, Auto classes, Trainer.

    model = regard.hf.wrap(LanguageModelConfig(vocab_size=100, mixer="performer"))        or of a model that exists
    Trainer(model, arguments, train_dataset=rows, callbacks=[regard.hf.AfterStep()]).train()
    model.save_pretrained("folder");   AutoModelForCausalLM.from_pretrained("folder")     after regard.hf.register()

A folder holds config.json and safetensors, and no code: Regard must be installed where it is read.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, distributed as dist, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
    TrainerCallback,
)
from transformers.modeling_outputs import (
    CausalLMOutput,
    MaskedLMOutput,
    ModelOutput,
    SequenceClassifierOutput,
)

from regard.core import Mixer, OptionError, UnsupportedError
from regard.core.options import tuples
from regard.models.classifier import ClassifierConfig
from regard.models.config import Layer, ModelConfig
from regard.models.language_model import LanguageModelConfig
from regard.models.masked_language_model import MaskedLanguageModelConfig
from regard.nn import after_step


class RegardConfig(PretrainedConfig):
    """`model`: the name of one of MODELS; `settings`: the fields of its configuration."""

    model_type = "regard"

    def __init__(self, model: str = "", settings: Mapping[str, Any] | None = None, **others: Any):
        self.model, self.settings = model, dict(settings or {})
        self.vocab_size = self.settings.get("vocab_size")
        super().__init__(**{"use_cache": False, **others})

    @classmethod
    def of(cls, config: ModelConfig) -> "RegardConfig":
        """Raises OptionError for mixers that are classes: a file can hold names alone."""
        settings = asdict(config)  # type: ignore[call-overload]
        layers = settings["mixer"] if isinstance(settings["mixer"], list | tuple) else [settings]
        for layer in layers:
            if not isinstance(layer["mixer"], str):
                raise OptionError(
                    f"a file can hold the name of a mixer and not the class {layer['mixer'].__name__}: pass a name of MIXERS"
                )
        others = {}
        if "num_classes" in settings:
            others["num_labels"] = settings["num_classes"]
        return cls(config.name, settings, tie_word_embeddings=False, **others)

    def regard(self) -> ModelConfig:
        """The configuration of the model inside."""
        if self.model not in WRAPPERS:
            raise OptionError(
                f"RegardConfig: model ({self.model!r}) must be one of {', '.join(WRAPPERS)}"
            )
        settings = tuples(self.settings)
        if isinstance(settings.get("mixer"), tuple):
            settings["mixer"] = tuple(Layer(**layer) for layer in settings["mixer"])
        return WRAPPERS[self.model].kind(**settings)


class RegardModel(PreTrainedModel):
    """A model of Regard behind the call of Transformers: `inside` is the model, whose weights are stored as they are."""

    config_class = RegardConfig
    base_model_prefix = "inside"
    main_input_name = "input_ids"
    kind: ClassVar[type[ModelConfig]]
    output: ClassVar[type[ModelOutput]]

    def __init__(self, config: RegardConfig, inside: nn.Module | None = None):
        super().__init__(config)
        made = config.regard()
        if not isinstance(made, self.kind):
            raise OptionError(f"{type(self).__name__} takes a {self.kind.name}, got a {made.name}")
        self.inside = made.build() if inside is None else inside
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """The model inside has started its own weights."""

    def forward(
        self,
        input_ids: Int[Tensor, "B T"],
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> Any:
        """Logits, and the loss where there are labels. Other arguments than those that say nothing are refused."""
        for name, value in others.items():
            if name not in _SILENT and value is not None and value is not False:
                raise UnsupportedError(f"{type(self).__name__} does not support {name}")
        valid = None if attention_mask is None else attention_mask.bool()
        logits = self.inside(input_ids, valid=valid)
        loss = None if labels is None else self.loss(logits, labels)
        output = self.output(loss=loss, logits=logits)
        return output.to_tuple() if return_dict is False else output

    def loss(self, logits: Tensor, labels: Tensor) -> Float[Tensor, ""]:
        return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())

    @property
    def mixers(self) -> list[Mixer]:
        return [module for module in self.modules() if isinstance(module, Mixer)]


_SILENT = {"use_cache", "cache_position", "position_ids", "num_items_in_batch", "logits_to_keep"}
"""Arguments of Transformers' loops that change no output here: positions count valid tokens, and there is no cache."""


class RegardForCausalLM(RegardModel, GenerationMixin):
    """`generate` computes the whole sequence for each token; `inside.generate` streams at the mechanism's cost."""

    kind = LanguageModelConfig
    output = CausalLMOutput

    def __init__(self, config: RegardConfig, inside: nn.Module | None = None):
        super().__init__(config, inside)
        self.generation_config.use_cache = False

    def loss(self, logits, labels):
        return super().loss(logits[:, :-1], labels[:, 1:])

    def prepare_inputs_for_generation(  # type: ignore[override,unused-ignore]  # all by name
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: Any
    ) -> dict[str, Any]:
        return {"input_ids": input_ids, "attention_mask": attention_mask}


class RegardForMaskedLM(RegardModel):
    kind = MaskedLanguageModelConfig
    output = MaskedLMOutput


class RegardForSequenceClassification(RegardModel):
    kind = ClassifierConfig
    output = SequenceClassifierOutput


WRAPPERS: dict[str, type[RegardModel]] = {
    cls.kind.name: cls
    for cls in (RegardForCausalLM, RegardForMaskedLM, RegardForSequenceClassification)
}
"""Name of a model -> its class for Transformers."""


def wrap(model: ModelConfig | nn.Module) -> RegardModel:
    """A model of Regard, or a new one of this configuration, for Transformers' loops and files.

    Raises UnsupportedError for any other model.
    """
    config = getattr(model, "config", None) if isinstance(model, nn.Module) else model
    if not isinstance(config, ModelConfig) or config.name not in WRAPPERS:
        raise UnsupportedError(
            f"wrap does not support {type(model).__name__}: it takes {', '.join(WRAPPERS)}"
        )
    inside = model if isinstance(model, nn.Module) else None
    return WRAPPERS[config.name](RegardConfig.of(config), inside)


def register_models() -> None:
    """Make the Auto classes know what `save_pretrained` of these models wrote."""
    AutoConfig.register("regard", RegardConfig, exist_ok=True)
    for auto, cls in (
        (AutoModelForCausalLM, RegardForCausalLM),
        (AutoModelForMaskedLM, RegardForMaskedLM),
        (AutoModelForSequenceClassification, RegardForSequenceClassification),
    ):
        auto.register(RegardConfig, cls, exist_ok=True)


class AfterStep(TrainerCallback):
    """Calls `after_step` of every mixer once after each optimiser step of a Trainer, which splits data over all processes."""

    def on_optimizer_step(self, args, state, control, model=None, **unused):
        split = dist.is_available() and getattr(args, "parallelism_config", None) is None
        after_step(model, dist.group.WORLD if split else None)
