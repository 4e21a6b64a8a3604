"""Blocks, each of one mixer and one feed-forward layer with norms, and stacks of them, one after the other.

    pre-norm:   x <- x + drop(f(norm(x)))       (Xiong et al. 2020, arXiv 2002.04745); the stack ends with a norm
    post-norm:  x <- norm(x + drop(f(x)))       (Vaswani et al. 2017, arXiv 1706.03762)
    both:       x <- x + drop(norm(f(norm(x)))) with `norm_after` (Gemma 2, arXiv 2408.00118)
    reversible: regard.nn.reversible; f is norm and mixer, g norm and feed-forward

f of a plain residual path is the mixer, then the feed-forward layer. A mixer that includes its feed-forward gets no second layer, and two of
its blocks count as one ordinary block. Reversible blocks give their two streams side by side (width 2 D), as in the official code of the Reformer, or as a mean.
"""

from collections.abc import Iterable
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OPEN, CheckedModule, Mask, Mixer, OptionError, Rate, UnsupportedError
from regard.functional.rows import recomputed
from regard.mixers.build import build, option_names, resolve
from regard.models.config import AnyMixer, Options, StackConfig
from regard.models.tokens import Hidden
from regard.nn import FEED_FORWARDS, NORMS, Chunked, ReversibleBlock, ReversibleSequence
from regard.positions import POSITIONS

States = tuple
"""The state of each block, or of its mixer."""


def layers_per_block(mixer: Mixer) -> int:
    """Returns the number of layers of this mixer that make up one ordinary block."""
    return 2 if mixer.capabilities.includes_ffn else 1


class ResidualPaths(CheckedModule):
    """Residual paths of a block, whose last part is a feed-forward layer, if it has one."""

    norm_first: bool
    dropout: nn.Dropout
    feed_forward: nn.Module | None
    feed_forward_norm: nn.Module | None

    def before(self, x: Hidden, norm: nn.Module) -> Hidden:
        return norm(x) if self.norm_first else x

    def add(self, x: Tensor, y: Tensor, norm: nn.Module) -> Hidden:
        x = x + self.dropout(y)
        return x if self.norm_first else norm(x)

    def feed(self, x: Hidden) -> Hidden:
        norm = self.feed_forward_norm
        if self.feed_forward is None or norm is None:
            return x
        return self.add(x, self.feed_forward(self.before(x, norm)), norm)


class Block(ResidualPaths):
    def __init__(
        self,
        dim: int,
        mixer: Mixer,
        feed_forward: nn.Module | None,
        *,
        norm: str = "layer",
        norm_first: bool = True,
        norm_after: bool = False,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        if mixer.capabilities.includes_ffn and feed_forward is not None:
            raise OptionError(
                f"{mixer.name} includes its feed-forward layer: pass feed_forward=None"
            )
        self.norm_first = norm_first
        self.mixer = mixer
        self.mixer_norm = NORMS[norm](dim)
        self.mixer_after = NORMS[norm](dim) if norm_after else nn.Identity()
        if feed_forward is not None and norm_after:
            feed_forward = nn.Sequential(feed_forward, NORMS[norm](dim))
        self.feed_forward = feed_forward
        self.feed_forward_norm = None if feed_forward is None else NORMS[norm](dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Hidden, *, mask: Mask = OPEN) -> Hidden:
        return self.after_mixer(x, self.mixer(self.before(x, self.mixer_norm), mask=mask))

    def extend(self, x: Hidden, state: Any, **options: Any) -> tuple[Hidden, Any]:
        """The next N tokens, and the mixer's state after them; its `extend` takes the options."""
        if self.norm_first:
            mixed, state = self.mixer.extend_normed(x, self.mixer_norm, state, **options)
        else:
            mixed, state = self.mixer.extend(x, state, **options)
        return self.after_mixer(x, mixed), state

    def after_mixer(self, x: Tensor, mixed: Tensor) -> Hidden:
        """The rest of the block: x is what came in, `mixed` what the mixer made of it."""
        return self.feed(self.add(x, self.mixer_after(mixed), self.mixer_norm))


def streamed(blocks: Iterable[Any], x: Any, state: States, **options: Any) -> tuple[Any, States]:
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
        self, x: Hidden, state: States, **options: Any
    ) -> tuple[Float[Tensor, "B N width"], States]:
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
