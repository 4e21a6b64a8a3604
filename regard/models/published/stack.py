"""A paper's stack by its named sizes, under the head that a task needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from regard.core import OptionError, Options, UnknownNameError
from regard.models.classifier import ClassifierConfig
from regard.models.config import StackConfig
from regard.models.language_model import LanguageModelConfig
from regard.models.masked_language_model import MaskedLanguageModelConfig
from regard.models.patches import PatchClassifierConfig
from regard.models.transformer import TransformerConfig

Head = Literal[
    "classifier", "masked_language_model", "language_model", "transformer", "patch_classifier"
]

_HEADS = (
    ClassifierConfig,
    MaskedLanguageModelConfig,
    LanguageModelConfig,
    TransformerConfig,
    PatchClassifierConfig,
)
CONFIGS: Mapping[str, type[StackConfig]] = {config.name: config for config in _HEADS}


Preset = dict[str, Any]
"""Fields of a configuration by name."""


def sizes(dim: int, num_heads: int, num_layers: int, **more: Any) -> Preset:
    return {"dim": dim, "num_heads": num_heads, "num_layers": num_layers, **more}


def mixed(mixer: str, **options: Any) -> Preset:
    return {"mixer": mixer, "mixer_options": options}


_BERT = {
    "feed_forward_bias": True,
    "position": "learned",
    "norm_first": False,
    "embedding_norm": True,
    "dropout": 0.1,
}
BERT_BASE = sizes(768, 12, 12, hidden_dim=3072, **_BERT)
"""BERT-base and RoBERTa-base (arXiv 1810.04805, 1907.11692), around which many encoders are built."""

BERT_LARGE = sizes(1024, 16, 24, hidden_dim=4096, **_BERT)

SMALL = sizes(64, 4, 2, max_len=256, position="learned")
"""For small machines: pre-norm, which trains without a warm-up."""


@dataclass(frozen=True)
class Published:
    """`fnet("base", head="classifier", vocab_size=32000, num_classes=2)` is a ClassifierConfig of the paper's size.

    `presets` holds fields of the configuration by the size's name; `heads` what it serves, the first by default.
    """

    name: str
    about: str
    heads: tuple[Head, ...]
    presets: Mapping[str, Options]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of tasks that its heads are trained on."""
        return tuple(kind for head in self.heads for kind in CONFIGS[head].kinds)

    def __call__(self, preset: str, *, head: Head | None = None, **fields: Any) -> StackConfig:
        """The head's configuration; `fields` of it replace those of the preset.

        A mixer (or `mixers`) comes with its own `mixer_options`, not with the preset's. A causal head has no global tokens.
        Raises UnknownNameError (preset, field), OptionError (a head that it does not have, a value that cannot be).
        """
        if not isinstance(preset, str) or preset not in self.presets:
            raise UnknownNameError(f"preset of {self.name}", preset, self.presets)
        head = self.heads[0] if head is None else head
        if head not in self.heads:
            raise OptionError(f"{self.name}: head must be {' or '.join(self.heads)}, got {head!r}")
        chosen = dict(self.presets[preset])
        if head == "language_model" and chosen.pop("global_tokens", None):
            chosen["mixer_options"] = {**chosen["mixer_options"], "max_global": 0}
        if fields.keys() & {"mixer", "mixers"}:
            for name in ("mixer", "mixers", "mixer_options"):
                chosen.pop(name, None)
        chosen |= fields
        if head == "transformer" and "mixer" in chosen:
            chosen = {
                "decoder_mixer": chosen["mixer"],
                "decoder_mixer_options": chosen.get("mixer_options", {}),
                **chosen,
            }
        return CONFIGS[head](**chosen)


decoder = partial(Published, heads=("language_model",))
"""A stack that is a language model alone."""
