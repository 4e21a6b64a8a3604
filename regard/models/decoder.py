"""Decoder: blocks that mix the tokens so far, then mix in a context, then a feed-forward layer (arXiv 1706.03762).

    post-norm:  x <- norm(x + drop(f(x)))       pre-norm:  x <- x + drop(f(norm(x))), and a norm after the last block

f is the causal self mixer, the cross mixer (queries from the tokens, the rest from the context), the feed-forward
layer. The cross mixer must stream: that proves that no query depends on a later one.
Streaming state: that of each self mixer, and that of each cross mixer, which holds its projections of the context.
"""

from dataclasses import field
from typing import Any

import torch
from torch import nn

from regard.core import (
    CheckedModule,
    Depth,
    Mask,
    Mixer,
    OptionError,
    OtherTokens,
    Rate,
    Streamed,
    UnsupportedError,
    as_state,
    compaction,
    permute,
)
from regard.functional.cache import Lengths, advance
from regard.functional.rows import recomputed
from regard.mixers.build import build
from regard.models.blocks import ResidualPaths, feed_forward, options_with_position, streamed
from regard.models.config import AnyMixer, Options, StackConfig, check_mixer
from regard.models.tokens import Hidden, SourceValid, Valid, check_state
from regard.nn import NORMS

Memory = OtherTokens
"""What the encoder made of the source."""


class EncoderDecoderConfig(StackConfig):
    """The stack's own fields describe the encoder; the decoder shares them, except for its mixers.

    Args:
        decoder_layers: blocks of the decoder; None: as many as the encoder's
        decoder_mixer: mixer inside the decoder, of `regard ls mixers`
        decoder_mixer_options: options of decoder_mixer
        cross_mixer: mixer of decoder and encoder, of `regard ls mixers`
        cross_mixer_options: options of cross_mixer
    """

    decoder_layers: Depth | None = None
    decoder_mixer: AnyMixer = "softmax"
    decoder_mixer_options: Options = field(default_factory=dict)
    cross_mixer: AnyMixer = "softmax"
    cross_mixer_options: Options = field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        if self.residual != "plain":
            raise OptionError(
                f"residual ({self.residual!r}) must be 'plain' here: a decoder's block has three parts, and two streams "
                "have place for two"
            )
        if self.norm_after:
            raise OptionError("norm_after (True) must be False here: a decoder's block has none")
        if self.hidden_dim == 0:
            raise OptionError(
                "hidden_dim (0) must be at least 1 here: a decoder's block has three parts"
            )
        check_mixer("decoder_mixer", self.decoder_mixer, self.decoder_mixer_options)
        check_mixer("cross_mixer", self.cross_mixer, self.cross_mixer_options)


@as_state
class State(Streamed):
    blocks: tuple[tuple[Any, Any], ...]  # (self mixer's, cross mixer's) for each block
    length: Lengths


class DecoderBlock(ResidualPaths):
    def __init__(
        self,
        dim: int,
        self_mixer: Mixer,
        cross_mixer: Mixer,
        feed_forward: nn.Module,
        *,
        norm: str = "layer",
        norm_first: bool = True,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        for mixer in (self_mixer, cross_mixer):
            if mixer.capabilities.includes_ffn:
                raise OptionError(
                    f"decoder: {mixer.name} includes its feed-forward layer, and a decoder's block has one after "
                    "both of its mixers. Choose a mixer without one, or use it in the encoder."
                )
        self_mixer.require("causal")
        for what in ("cross", "bidirectional", "streaming"):
            cross_mixer.require(what)
        if cross_mixer.capabilities.streaming == "segment":
            raise UnsupportedError(
                f"{cross_mixer.name} does not support the place between decoder and encoder: what it reads of a context "
                "depends on how many queries follow, which are later tokens"
            )
        self.norm_first = norm_first
        self.self_mixer = self_mixer
        self.self_norm = NORMS[norm](dim)
        self.cross_mixer = cross_mixer
        self.cross_norm = NORMS[norm](dim)
        self.feed_forward = feed_forward
        self.feed_forward_norm = NORMS[norm](dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Hidden, context: Memory, *, mask: Mask, seen: Mask) -> Hidden:
        """`mask` is that of the tokens, `seen` that of the context."""
        mixed = self.self_mixer(self.before(x, self.self_norm), mask=mask)
        x = self.add(x, mixed, self.self_norm)
        mixed = self.cross_mixer(self.before(x, self.cross_norm), context=context, mask=seen)
        return self.feed(self.add(x, mixed, self.cross_norm))

    def extend(
        self, x: Hidden, state: tuple[Any, Any], **options: Any
    ) -> tuple[Hidden, tuple[Any, Any]]:
        """The next N tokens, and the states of both mixers after them; `valid` and `donate` go to both."""
        own, cross = state
        mixed, own = self.self_mixer.extend(self.before(x, self.self_norm), own, **options)
        x = self.add(x, mixed, self.self_norm)
        mixed, cross = self.cross_mixer.extend(self.before(x, self.cross_norm), cross, **options)
        return self.feed(self.add(x, mixed, self.cross_norm)), (own, cross)


class Decoder(CheckedModule):
    """x [B T D], context [B S D] -> hidden [B T D]; x are embedded tokens. Where `valid` is False the output means nothing."""

    def __init__(self, config: EncoderDecoderConfig):
        super().__init__()
        options = options_with_position(config, config.decoder_mixer, config.decoder_mixer_options)
        self.blocks: Any = nn.ModuleList(
            DecoderBlock(
                config.dim,
                build(config.decoder_mixer, **config.facts, **options),
                build(config.cross_mixer, **config.facts, **config.cross_mixer_options),
                feed_forward(config),
                **config.norms,
            )
            for _ in range(config.decoder_layers or config.num_layers)
        )
        self.norm = config.norm_if(config.norm_first, config.dim)
        self.checkpoint = config.checkpoint

    @property
    def self_mixers(self) -> list[Mixer]:
        return [block.self_mixer for block in self.blocks]

    @property
    def cross_mixers(self) -> list[Mixer]:
        return [block.cross_mixer for block in self.blocks]

    def forward(
        self, x: Hidden, context: Memory, *, valid: Valid = None, context_valid: SourceValid = None
    ) -> Hidden:
        order = None if valid is None else compaction(valid)
        if order is not None:  # a cross mixer counts its queries from the first column
            x, valid = permute(x, order.source), order.valid
        masks = {"mask": Mask(causal=True, valid=valid), "seen": Mask(valid=context_valid)}
        for block in self.blocks:
            x = recomputed(block, x, context, when=self.checkpoint, random=True, **masks)
        x = self.norm(x)
        return x if order is None else permute(x, order.target)

    def initial_state(
        self, context: Memory, *, context_valid: SourceValid = None, max_len: int | None = None
    ) -> State:
        """The state before the first token, with every block's projections of the context; `max_len` reserves room."""
        B = context.shape[0]
        blocks = tuple(
            (
                block.self_mixer.initial_state(B, max_len=max_len),
                block.cross_mixer.initial_state(B, context=context, valid=context_valid),
            )
            for block in self.blocks
        )
        return State(blocks, context.new_zeros(B, dtype=torch.long))

    def extend(
        self, x: Hidden, state: State, *, valid: Valid = None, donate: bool = False
    ) -> tuple[Hidden, State]:
        """The next N tokens of each row, and the state after them; any chunking gives what `forward` gives, unless a mixer streams by segments.

        Raises ShapeError for a state that is not of this model and batch.
        """
        check_state("decoder", state, State, len(self.blocks), x)
        x, after = streamed(self.blocks, x, state.blocks, valid=valid, donate=donate)
        return self.norm(x), State(after, advance(state.length, valid, x.shape[1]))
