"""Configurations of every model, of stacks of blocks, and of models of a table's fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, ClassVar, Literal, cast

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core import (
    CheckedModule,
    CheckedOptions,
    Count,
    Declared,
    Depth,
    Mixer,
    OptionError,
    Options,
    Positions,
    Rate,
)
from regard.mixers.build import resolve
from regard.nn import FEED_FORWARDS, NORMS
from regard.nn.fields import Fields, check_batch, check_fields
from regard.positions import POSITIONS


class ModelConfig(Declared):
    """Base of every model's configuration. kinds: the tasks that the model is trained on.

    Args:
        vocab_size: different tokens, those for padding, start and end included
        dim: channels of a token, D
        num_heads: heads, H
        num_layers: layers of the stack
        max_len: tokens in a row for which positions and mixers are built; the limit, where one of them has one. None: no limit
        feed_forward: feed-forward layer, of `regard ls feed_forwards`
        hidden_dim: channels of the hidden layer; None: a multiple of dim
        norm_first: True: the norm stands before each layer; False: after the sum
        dropout: share of values that is set to zero in training
        checkpoint: True: activations are computed again in the backward, which saves memory
        num_classes: classes to tell apart
        summary: what the head reads: mean over tokens, or maximum of each channel
        attention_dropout: share of the attention weights that is set to zero in training
        pool: pool, of `regard ls pools` or a class
        pool_options: options of the pool
        hidden_dims: channels of each hidden layer of the network
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ()

    def build(self) -> Any:
        """The model of this configuration, or of the nearest parent that has one, newly initialised.

        Raises OptionError for fields that do not go together.
        """
        from regard.models import MODELS  # which is made of the files that read this one

        names = [vars(kind).get("name", "") for kind in type(self).__mro__]
        return next(MODELS[name] for name in names if name in MODELS)(self)


class Model(CheckedModule):
    """Base of every model: it takes its own kind of configuration, and is refused where it would not fit in memory."""

    config: Any

    def __init__(self, config: Any):
        super().__init__()
        self.config = config


AnyMixer = str | type[Mixer]
"""A name of MIXERS, or a class."""
Logits = Float[Tensor, "B C"]
"""Logits of C classes or tasks for each row."""
Residual = Literal["plain", "reversible", "reversible_mean"]


@dataclass(frozen=True)
class Layer(metaclass=CheckedOptions):
    """A mixer and its options, `num_heads` among them, of one layer or of some among others."""

    mixer: AnyMixer
    options: Options = field(default_factory=dict)

    def __post_init__(self):
        check_mixer("layer", self.mixer, self.options)


Entry = str | Layer | tuple[str, Options] | Options
"""A layer of a pattern: a name, a name and its options, or the fields of a Layer."""


class SizesConfig(ModelConfig):
    """What every stack over tokens has."""

    vocab_size: int
    dim: int = 128
    num_heads: int = 4
    num_layers: Depth = 2
    hidden_dim: int | None = None
    feed_forward: str = "gelu"
    dropout: Rate = 0.0
    checkpoint: bool = False


class StackConfig(SizesConfig):
    """Token embedding, positions, blocks.

    num_layers counts ordinary blocks (mixer and feed-forward); a mixer that includes its feed-forward fills each
    with two layers of its own. mixer may be a tuple of Layers, repeated in order, where they differ; mixers is a short way to one.
    hidden_dim is the feed-forward width (default: 4 dim), that of the plain form where the layer is gated; 0: no such layer.
    position names an entry of POSITIONS: added kinds serve every mixer, the others those that take them.
    global_tokens are of a bidirectional stack.

    Less memory in training, for the same function: feed_forward_chunk tokens at a time in the feed-forward layers;
    checkpoint computes every block again for its backward; residual="reversible" computes the inputs of blocks back
    from their outputs (`regard.nn.reversible`: another function than the plain residual path, pre-norm, whose two
    streams come out side by side, or as their mean with "reversible_mean").

    Args:
        mixer: mixer, of `regard ls mixers` or a class; or one for each layer
        mixer_options: options of the mixer
        mixers: pattern of mixers, repeated over the layers: "gated_delta*3 softmax", or a list of names and (name, options)
        embedding_scale: factor of the token embeddings; None: sqrt(dim)
        norm_after: True: a norm stands after each layer as well, before the sum
        feed_forward_bias: True: feed-forward layers have biases
        position: positions, of `regard ls positions`
        position_options: options of the positions
        norm: norm layer of a block
        embedding_norm: True: a norm follows the positions
        global_tokens: first tokens of a row that see all and are seen by all
        feed_forward_chunk: tokens that pass the feed-forward layer at once; None: all
        residual: how layers are added: plainly, or in two streams that are computed back to save memory
    """

    hidden_dim: Count | None = None
    max_len: int = 1024
    mixer: AnyMixer | Sequence[Entry] = "softmax"
    mixer_options: Options = field(default_factory=dict)
    mixers: str | Sequence[Entry] = ()
    embedding_scale: float | None = None
    feed_forward_bias: bool = False
    position: str = "sinusoidal"
    position_options: Options = field(default_factory=dict)
    norm: str = "layer"
    norm_first: bool = True
    norm_after: bool = False
    embedding_norm: bool = False
    global_tokens: Count = 0
    feed_forward_chunk: int | None = None
    residual: Residual = "plain"

    @property
    def facts(self) -> dict[str, Any]:
        """What the stack offers to mixers and positions."""
        return {"dim": self.dim, "num_heads": self.num_heads, "max_len": self.max_len}

    @property
    def norms(self) -> dict[str, Any]:
        """What every block is told of its residual paths."""
        return {"norm": self.norm, "norm_first": self.norm_first, "dropout": self.dropout}

    def norm_if(self, wanted: bool, width: int) -> nn.Module:
        """A norm of this width, or nothing."""
        return NORMS[self.norm](width) if wanted else nn.Identity()

    def global_at(self, place: Positions, batch_size: int) -> Bool[Tensor, "B T"] | None:
        """The tokens that see all and are seen by all, by their places; None where there are none."""
        if not self.global_tokens:
            return None
        return (place < self.global_tokens).expand(batch_size, -1)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The mixer of each of the num_layers blocks."""
        if isinstance(self.mixer, tuple):
            return tuple(islice(cycle(self.mixer), self.num_layers))
        return (Layer(cast(str, self.mixer), self.mixer_options),) * self.num_layers

    @property
    def mixer_name(self) -> str:
        return ", ".join(dict.fromkeys(resolve(layer.mixer).name for layer in self.layers))

    def __post_init__(self):
        if self.mixers and self.mixer != "softmax":
            raise OptionError(f"{self.name} takes one of mixer and mixers")
        if self.mixers or not isinstance(self.mixer, str | type):
            object.__setattr__(self, "mixer", pattern(self.mixers or cast(Any, self.mixer)))
        object.__setattr__(self, "mixers", ())
        if isinstance(self.mixer, str | type):
            check_mixer("mixer", self.mixer, self.mixer_options)
        elif not self.mixer:
            raise OptionError("mixer must be a name, a class or a tuple of Layers, got none")
        elif self.mixer_options:
            raise OptionError(
                "mixer_options must be empty where mixer is a tuple: each Layer has its own"
            )
        self._check_memory()
        FEED_FORWARDS[self.feed_forward]
        POSITIONS[self.position]
        NORMS[self.norm]

    def _check_memory(self) -> None:
        if self.norm_after and (self.residual != "plain" or not self.norm_first):
            raise OptionError("norm_after=True needs norm_first=True and residual='plain'")
        wrong = {
            "needs norm_first=True": not self.norm_first,
            "needs a feed-forward layer: hidden_dim is 0": self.hidden_dim == 0,
            "computes every block again already: leave checkpoint=False": self.checkpoint,
        }
        for why, found in wrong.items() if self.residual != "plain" else ():
            if found:
                raise OptionError(f"residual={self.residual!r} {why}")


def pattern(mixers: str | Sequence[Entry]) -> tuple[Layer, ...]:
    """The Layers that `mixers` names in short.

    >>> pattern("gated_delta*3 softmax")
    """
    layers = []
    for part in mixers.split() if isinstance(mixers, str) else mixers:
        if isinstance(part, str):
            name, star, times = part.partition("*")
            if star and not (times.isdecimal() and 1 <= int(times) <= 10_000):
                raise OptionError(
                    f"mixers: {part!r} must be a name, or a name and how often: softmax*3"
                )
            layers += [Layer(name)] * int(times or 1)
        elif isinstance(part, Mapping):
            layers.append(Layer(**part))
        else:
            layers.append(part if isinstance(part, Layer) else Layer(*part))
    return tuple(layers)


def check_mixer(name: str, mixer: AnyMixer, options: Options) -> None:
    """`name` is the field's, and `<name>_options` that of its options. Raises OptionError, UnknownNameError."""
    resolve(mixer)
    facts = {"mixer", "dim", "max_len"} | ({"num_heads"} if name != "layer" else set())
    for fact in options.keys() & facts:
        raise OptionError(
            f"{name}_options must not hold {fact}: the config's own {fact} is given to every mixer"
        )


class FieldsConfig(ModelConfig):
    """Base of models of a table's fields.

    Args:
        fields: columns of the table, those of a `regard.lab.data.Schema` or written by hand; none until the data are read
        num_tasks: answers predicted from one row, logits
    """

    kinds: ClassVar[tuple[str, ...]] = ("table",)

    fields: Fields = ()
    num_tasks: int = 1

    def __post_init__(self):
        check_fields(self.fields)


class FieldsModel(Model):
    """Base of models of a table's fields. Raises OptionError where the configuration has none."""

    def __init__(self, config: FieldsConfig):
        if not config.fields:
            raise OptionError(
                f"{config.name}: fields are not known. Pass those of a schema, or train it on a table: "
                "its schema has them."
            )
        super().__init__(config)

    def check(self, batch: object) -> None:
        """Raises ShapeError for a batch that is not of these fields."""
        check_batch(self, batch)
