"""The blocks of a stack, one after the other: with a plain residual path, or with a reversible one.

    plain:        regard.models.block       reversible:  regard.nn.reversible; f is norm and mixer, g norm and feed-forward

Reversible blocks give their two streams side by side (width 2 D), as in the official code of the Reformer, or as a mean.
"""

from collections.abc import Iterable
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Mask, Mixer, OptionError, UnsupportedError
from regard.functional.rows import recomputed
from regard.mixers.build import build, option_names, resolve
from regard.models.block import Block, layers_per_block
from regard.models.config import AnyMixer, Options, StackConfig
from regard.models.tokens import Hidden
from regard.nn import FEED_FORWARDS, NORMS, Chunked, ReversibleBlock, ReversibleSequence
from regard.positions import POSITIONS


def streamed(
    blocks: Iterable[Any], x: Any, state: tuple[Any, ...], **options: Any
) -> tuple[Any, tuple[Any, ...]]:
    """What the last block makes of the next N tokens, and the states after them; `valid` and `donate` go to every mixer."""
    after = []
    for block, before in zip(blocks, state, strict=True):
        x, block_state = block.extend(x, before, **options)
        after.append(block_state)
    return x, tuple(after)


class Blocks(nn.ModuleList):
    """x [B T D] -> [B T width]. `checkpoint`: each block is computed again for its backward."""

    def __init__(self, blocks: list[Block], width: int, *, checkpoint: bool = False):
        super().__init__(blocks)
        self.width = width
        self.checkpoint = checkpoint

    @property
    def mixers(self) -> list[Mixer]:
        return [cast(Block, block).mixer for block in self]

    def forward(self, x: Hidden, *, mask: Mask) -> Hidden:
        for block in self:
            x = recomputed(block, x, when=self.checkpoint, random=True, mask=mask)
        return x

    stream = streamed


class Mixing(nn.Module):
    """f of a reversible block: dropout(mixer(norm(x)))."""

    def __init__(self, norm: nn.Module, mixer: Mixer, dropout: float):
        super().__init__()
        self.norm = norm
        self.mixer = mixer
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Hidden, *, mask: Mask) -> Hidden:
        return self.dropout(self.mixer(self.norm(x), mask=mask))

    def extend(self, x: Hidden, state: Any, **options: Any) -> tuple[Hidden, Any]:
        mixed, state = self.mixer.extend_normed(x, self.norm, state, **options)
        return self.dropout(mixed), state


class ReversibleBlocks(ReversibleSequence):
    """x [B T D] -> [B T width]; training stores the activations of no block."""

    def __init__(self, blocks: list[ReversibleBlock], *, dim: int, concat: bool):
        super().__init__(blocks, merge="concat" if concat else "mean")
        self.width = 2 * dim if concat else dim

    @property
    def mixers(self) -> list[Mixer]:
        return [cast(Mixing, cast(ReversibleBlock, block).f).mixer for block in self.blocks]

    def stream(
        self, x: Hidden, state: tuple[Any, ...], **options: Any
    ) -> tuple[Float[Tensor, "B N width"], tuple[Any, ...]]:
        """The next N tokens, and the states of the mixers after them."""
        streams, after = streamed(self.blocks, (x, x), state, **options)
        return self.merged(*streams), after


def make_blocks(config: StackConfig, *, causal: bool) -> Blocks | ReversibleBlocks:
    """Raises UnsupportedError, with its reason, if a mixer cannot serve; OptionError, UnknownNameError for its options."""
    mixers = []
    for layer in config.layers:
        given = config.facts | options_with_position(config, layer.mixer, layer.options)
        first = build(layer.mixer, **given)
        first.require("causal" if causal else "bidirectional")
        if config.global_tokens:
            first.require("global_tokens")
        more = (build(layer.mixer, **given) for _ in range(layers_per_block(first) - 1))
        mixers += [first, *more]
    if config.residual == "plain":
        blocks = [
            Block(
                config.dim,
                mixer,
                None if mixer.capabilities.includes_ffn else feed_forward(config),
                norm_after=config.norm_after,
                **config.norms,
            )
            for mixer in mixers
        ]
        return Blocks(blocks, config.dim, checkpoint=config.checkpoint)
    pairs = [_reversible(config, mixer) for mixer in mixers]
    return ReversibleBlocks(pairs, dim=config.dim, concat=config.residual == "reversible")


def _reversible(config: StackConfig, mixer: Mixer) -> ReversibleBlock:
    if mixer.capabilities.includes_ffn:
        raise UnsupportedError(
            f"{mixer.name} does not support residual={config.residual!r}: it includes its feed-forward layer, which "
            "must stand alone on the second stream. Use residual='plain'."
        )
    norm = NORMS[config.norm]
    g = nn.Sequential(norm(config.dim), feed_forward(config), nn.Dropout(config.dropout))
    return ReversibleBlock(Mixing(norm(config.dim), mixer, config.dropout), g)


def feed_forward(config: StackConfig) -> Any:
    """The layer; None where hidden_dim is 0."""
    if config.hidden_dim == 0:
        return None
    layer = FEED_FORWARDS[config.feed_forward](
        config.dim, config.hidden_dim, bias=config.feed_forward_bias, dropout=config.dropout
    )
    chunk = config.feed_forward_chunk
    return layer if chunk is None else Chunked(layer, chunk)


def options_with_position(
    config: StackConfig, mixer: AnyMixer, mixer_options: Options
) -> dict[str, Any]:
    """The mixer's options, and the config's positions among them where they are not of a kind that is added."""
    options, cls = dict(mixer_options), resolve(mixer)
    if POSITIONS[config.position].kind == "absolute":
        return options
    takes = sorted(cls.capabilities.positions)
    if config.position not in takes or "position" not in option_names(cls):
        raise UnsupportedError(
            f"{cls.name} does not support {config.position} positions: it takes {', '.join(takes) or 'none'}. "
            f"Added ones serve every mixer: {', '.join(p.name for p in POSITIONS.values() if p.kind == 'absolute')}. "
            f"A layer takes its own in mixers=[..., ('softmax', {{'position': '{config.position}'}})]."
        )
    if given := sorted({"position", "position_options"} & options.keys()):
        raise OptionError(
            f"mixer_options must not hold {' and '.join(given)}: the config's own position is given to the mixer"
        )
    options["position"] = config.position
    if config.position_options:
        options["position_options"] = config.position_options
    return options
