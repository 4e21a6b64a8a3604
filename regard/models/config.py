"""What every model, and every stack of blocks, is configured by."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import nn

from regard.core import Mixer, OptionError
from regard.core.shapes import check_positive
from regard.mixers.build import resolve
from regard.nn import FEED_FORWARDS, NORMS
from regard.positions import POSITIONS


class ModelConfig(ABC):
    """Base of every model's configuration, a frozen dataclass. kinds: of the tasks that the model is trained on."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def build(self) -> nn.Module:
        """The model of this configuration, newly initialised."""


@dataclass(frozen=True, kw_only=True)
class StackConfig(ModelConfig):
    """Token embedding, positions, blocks.

    num_layers counts ordinary blocks (mixer and feed-forward); a mixer that includes its feed-forward fills each
    with two layers of its own. hidden_dim is the feed-forward width (default: 4 dim), that of the plain form where the
    layer is gated. position names an entry of POSITIONS: added kinds serve every mixer, the others those that take them.
    """

    vocab_size: int
    dim: int = 128
    num_heads: int = 4
    num_layers: int = 2
    max_len: int = 1024
    mixer: str | type[Mixer] = "softmax"
    mixer_options: Mapping[str, Any] = field(default_factory=dict)
    feed_forward: str = "gelu"
    hidden_dim: int | None = None
    feed_forward_bias: bool = False
    position: str = "sinusoidal"
    position_options: Mapping[str, Any] = field(default_factory=dict)
    norm: str = "layer"
    norm_first: bool = True
    dropout: float = 0.0

    def __post_init__(self):
        check_positive(
            vocab_size=self.vocab_size,
            dim=self.dim,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            max_len=self.max_len,
        )
        if self.hidden_dim is not None:
            check_positive(hidden_dim=self.hidden_dim)
        check_mixer("mixer", self.mixer, self.mixer_options)
        FEED_FORWARDS[self.feed_forward]
        POSITIONS[self.position]
        NORMS[self.norm]
        check_mapping("position_options", self.position_options)
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise OptionError(f"dropout ({self.dropout!r}) must be at least 0 and below 1")


def check_mixer(name: str, mixer: str | type[Mixer], options: object) -> None:
    """`name` is the field's, and `<name>_options` that of its options. Raises OptionError, UnknownNameError."""
    resolve(mixer)
    for fact in check_mapping(f"{name}_options", options).keys() & {"dim", "num_heads", "max_len"}:
        raise OptionError(
            f"{name}_options must not hold {fact}: the config's own {fact} is given to every mixer"
        )


def check_mapping(name: str, options: object) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise OptionError(f"{name} must be a mapping of option names, got {type(options).__name__}")
    return options
