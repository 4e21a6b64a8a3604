"""A paper's stack by its named sizes: for tokens, under the head that a task needs, and for images."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from regard.core import Mixer, OptionError, UnknownNameError
from regard.models.classifier import ClassifierConfig
from regard.models.config import Layer, StackConfig
from regard.models.language_model import LanguageModelConfig
from regard.models.masked_language_model import MaskedLanguageModelConfig
from regard.models.patches import PatchClassifierConfig
from regard.models.transformer import TransformerConfig

Head = Literal["classifier", "masked_language_model", "language_model", "transformer"]

CONFIGS: Mapping[str, type[StackConfig]] = MappingProxyType(
    {
        config.name: config
        for config in (
            ClassifierConfig,
            MaskedLanguageModelConfig,
            LanguageModelConfig,
            TransformerConfig,
        )
    }
)

BERT_BASE: Mapping[str, Any] = MappingProxyType(
    {
        "dim": 768,
        "num_heads": 12,
        "num_layers": 12,
        "hidden_dim": 3072,
        "feed_forward": "gelu",
        "feed_forward_bias": True,
        "position": "learned",
        "norm_first": False,
        "embedding_norm": True,
        "dropout": 0.1,
    }
)
"""BERT-base and RoBERTa-base (arXiv 1810.04805, 1907.11692), around which many encoders are built."""

BERT_LARGE: Mapping[str, Any] = MappingProxyType(
    {**BERT_BASE, "dim": 1024, "num_heads": 16, "num_layers": 24, "hidden_dim": 4096}
)

SMALL: Mapping[str, Any] = MappingProxyType(
    {"dim": 64, "num_heads": 4, "num_layers": 2, "max_len": 256, "position": "learned"}
)
"""For small machines: pre-norm, which trains without a warm-up."""


@dataclass(frozen=True)
class Published:
    """`fnet("base", head="classifier", vocab_size=32000, num_classes=2)` is a ClassifierConfig of the paper's size.

    `presets` holds fields of the configuration by the size's name; `heads` what it serves, the first by default.
    """

    name: str
    about: str
    heads: tuple[Head, ...]
    presets: Mapping[str, Mapping[str, Any]]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of tasks that its heads are trained on."""
        return tuple(kind for head in self.heads for kind in CONFIGS[head].kinds)

    def __call__(
        self,
        preset: str,
        *,
        vocab_size: int,
        head: Head | None = None,
        num_classes: int | None = None,
        max_len: int | None = None,
        mixer: str | type[Mixer] | tuple[Layer, ...] | None = None,
        mixer_options: Mapping[str, Any] | None = None,
    ) -> StackConfig:
        """The configuration; what is not named here is changed by `dataclasses.replace`.

        `mixer` swaps the mechanism, with options of its own. A causal head has no global tokens.
        Raises UnknownNameError (preset), OptionError (a head that it does not have, classes without a classifier).
        """
        head = self.heads[0] if head is None else head
        if head not in self.heads:
            raise OptionError(f"{self.name}: head must be {' or '.join(self.heads)}, got {head!r}")
        if (num_classes is None) == (head == "classifier"):
            raise OptionError(
                f"{self.name}: a classifier needs num_classes, and no other head has it "
                f"(head {head!r}, num_classes {num_classes})"
            )
        fields = chosen(self, preset, mixer, mixer_options) | {"vocab_size": vocab_size}
        if num_classes is not None:
            fields["num_classes"] = num_classes
        if max_len is not None:
            fields["max_len"] = max_len
        if head == "language_model" and fields.pop("global_tokens", None) and mixer is None:
            fields["mixer_options"] = {**fields["mixer_options"], "max_global": 0}
        if head == "transformer":
            fields["decoder_mixer"] = fields["mixer"]
            fields["decoder_mixer_options"] = fields.get("mixer_options", {})
        return CONFIGS[head](**fields)


@dataclass(frozen=True)
class PublishedImages:
    """`mlp_mixer("b_16", image_size=(224, 224), channels=3, num_classes=1000)` is a PatchClassifierConfig."""

    name: str
    about: str
    presets: Mapping[str, Mapping[str, Any]]

    @property
    def kinds(self) -> tuple[str, ...]:
        return PatchClassifierConfig.kinds

    def __call__(
        self,
        preset: str,
        *,
        image_size: tuple[int, int],
        channels: int,
        num_classes: int,
        vocab_size: int = 256,
        mixer: str | type[Mixer] | tuple[Layer, ...] | None = None,
        mixer_options: Mapping[str, Any] | None = None,
    ) -> PatchClassifierConfig:
        """The configuration; what is not named here is changed by `dataclasses.replace`.

        vocab_size: the number of levels of a pixel. `mixer` swaps the mechanism, with options of its own.
        Raises UnknownNameError (preset), OptionError.
        """
        fields = chosen(self, preset, mixer, mixer_options)
        return PatchClassifierConfig(
            image_size=image_size,
            channels=channels,
            num_classes=num_classes,
            vocab_size=vocab_size,
            **fields,
        )


def chosen(
    entry: Any,
    preset: str,
    mixer: str | type[Mixer] | tuple[Layer, ...] | None,
    mixer_options: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The fields of a preset, with another mixer where one is given. Raises UnknownNameError, OptionError."""
    if not isinstance(preset, str) or preset not in entry.presets:
        raise UnknownNameError(f"preset of {entry.name}", preset, entry.presets)
    fields = dict(entry.presets[preset])
    if mixer is not None:
        fields |= {"mixer": mixer, "mixer_options": mixer_options or {}}
    elif mixer_options is not None:
        raise OptionError(f"{entry.name}: mixer_options go with mixer: pass mixer= too")
    return fields
