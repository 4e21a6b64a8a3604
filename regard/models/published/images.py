"""PublishedImages: a paper's stack for images by its named sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.core import Mixer
from regard.models.config import Layer
from regard.models.patches import PatchClassifierConfig
from regard.models.published.stack import chosen


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
