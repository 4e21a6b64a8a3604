"""Transformer: encoder and decoder with three mixers of one's choice (Vaswani et al. 2017, arXiv 1706.03762).

    memory = encoder(sqrt(D) E[source] + PE)        logits = decoder(sqrt(D) E[target] + PE, memory) E^T

One matrix E embeds the source, embeds the target and gives the logits; with `target_vocab_size` the target has its own.
Position n of the target sees its inputs up to n, and the logits there are those of the token after it: inputs are the
labels shifted right by one, a beginning-of-sequence token first. Cost: the mixers'.
The presets are the paper's sizes: post-norm, biases in the feed-forward layers alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core import (
    Mixer,
    OptionError,
    ShapeError,
    UnsupportedError,
    Weights,
    compaction,
    restored_weights,
    shown,
)
from regard.mixers.build import resolve
from regard.models.decoder import Decoder, EncoderDecoderConfig, State
from regard.models.encoder import Embedding, Encoder, bound
from regard.models.generation import Beams, GenerativeModel, Sampling, Search
from regard.models.tokens import (
    Places,
    Source,
    SourceValid,
    TokenLogits,
    Tokens,
    Valid,
    check_length,
    check_state,
    check_tokens,
    next_places,
)
from regard.nn.recorded import recorded


class TransformerConfig(EncoderDecoderConfig):
    """Encoder and decoder over token ids; target_vocab_size is vocab_size, in one table for both, where it is None.

    Args:
        target_vocab_size: different target tokens; None: one vocabulary for both
    """

    name = "transformer"
    kinds = ("translate",)
    target_vocab_size: int | None = None


class Transformer(GenerativeModel):
    """model(source [B S], target [B T], valid=[B S] | None, target_valid=[B T] | None) -> logits [B T vocab].

    Raises UnsupportedError, with the mixer's reason, if a mixer cannot serve in its place.
    """

    name = "transformer"

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.who = (
            f"transformer({resolve(config.decoder_mixer).name}, {resolve(config.cross_mixer).name})"
        )
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.places = Places()
        self.own_embedding = (
            None
            if config.target_vocab_size is None
            else Embedding(config, config.target_vocab_size)
        )

    @property
    def target_embedding(self) -> Embedding:
        return self.encoder.embedding if self.own_embedding is None else self.own_embedding

    @property
    def max_target_len(self) -> int | None:
        return bound(self.config, self.target_embedding.position, self.streamed)

    @property
    def streamed(self) -> Sequence[Mixer]:
        return (*self.decoder.self_mixers, *self.decoder.cross_mixers)

    def forward(
        self,
        source: Source,
        target: Tokens,
        *,
        valid: SourceValid = None,
        target_valid: Valid = None,
    ) -> TokenLogits:
        """Raises ShapeError for token ids or lengths that do not fit."""
        self.encoder.check_tokens(source, valid)
        self._check_target(target, target_valid, source)
        check_length(self.who, "target length", target.shape[1], self.max_target_len)
        memory = self.encoder(source, valid=valid)
        x = self.target_embedding(target, self.places(target, target_valid), target_valid)
        return self._logits(self.decoder(x, memory, valid=target_valid, context_valid=valid))

    def _logits(self, hidden):
        return F.linear(hidden, self.target_embedding.table.weight)

    def cross_attention(
        self,
        source: Source,
        target: Tokens,
        *,
        valid: SourceValid = None,
        target_valid: Valid = None,
    ) -> list[Weights]:
        """The cross-attention weights of each decoder block in `forward`, the first block's first.

        Row t belongs to target token t, whose logits predict the token after it. Zero where a token is invalid.
        Raises UnsupportedError, with the reason, where the cross mixer has no such map.
        """
        for mixer in self.decoder.cross_mixers:
            mixer.require("attention_map")
        with recorded(self.decoder) as calls:
            self(source, target, valid=valid, target_valid=target_valid)
        maps = [call.attention_map() for call in calls if call.context is not None]
        if target_valid is None:
            return maps
        order = compaction(target_valid)  # the decoder has moved valid tokens to the front
        return [restored_weights(weights, order, None) for weights in maps]

    def initial_state(
        self, source: Source, *, valid: SourceValid = None, max_len: int | None = None
    ) -> State:
        """Encodes the source: the state before the first target token; `max_len` reserves room for so many."""
        memory = self.encoder(source, valid=valid)
        return self.decoder.initial_state(memory, context_valid=valid, max_len=max_len)

    def _extend(self, target, state, *, valid=None, documents=None, donate=False):
        if documents is not None:
            raise UnsupportedError(
                f"{self.who} does not support documents: a row's targets are of one source. Give each pair as a row."
            )
        self._check_target(target, valid)
        check_state(self.who, state, State, len(self.decoder.blocks), target)
        place = next_places(self.who, target, state, valid, self.max_target_len)
        x = self.target_embedding(target, place, valid)
        return self.decoder.extend(x, state, valid=valid, donate=donate)

    def generate(
        self,
        source: Source,
        start: int | Tokens,
        *,
        valid: SourceValid = None,
        start_valid: Valid = None,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
        eos: int | None = None,
    ) -> Tokens:
        """The N <= max_new_tokens target tokens after `start`: the id that begins every target, or targets to go on with.

        Sources and starts of different lengths are padded on any side and marked by `valid` and `start_valid`: each
        row gets what it would get alone. After `eos` a row holds `eos` only. Temperature 0 takes the most likely token.
        Runs in eval mode, and leaves every module's mode as it was; of a model in training mode one thread at a time may ask for it.
        """
        sampling = Sampling(temperature, top_k, top_p, generator)
        return self._decoded(sampling, source, start, valid, start_valid, max_new_tokens, eos)

    def beam_search(
        self,
        source: Source,
        start: int | Tokens,
        *,
        valid: SourceValid = None,
        start_valid: Valid = None,
        max_new_tokens: int,
        beams: int = 4,
        length_penalty: float = 0.6,
        eos: int | None = None,
    ) -> Beams:
        """The most likely targets after `start`; see `regard.models.generation`."""
        search = Search(beams, length_penalty)
        return self._decoded(search, source, start, valid, start_valid, max_new_tokens, eos)

    def _decoded(self, decode, source, start, valid, start_valid, max_new_tokens, eos):
        """What `decode` makes of the targets to go on with: one id is that of every row."""
        self.encoder.check_tokens(source, valid)
        size = self.target_embedding.table.num_embeddings
        if isinstance(start, int) and not isinstance(start, bool):
            if start_valid is not None:
                raise OptionError(
                    f"{self.who}: start_valid belongs to starts [B T], and start is one id"
                )
            if not 0 <= start < size:
                raise ShapeError(
                    f"{self.who}: start {shown(start)} is outside the vocabulary (vocab_size {size})"
                )
            start = torch.full_like(source[:, :1], start)
        self._check_target(start, start_valid, source)
        return self._go_on(decode, start, start_valid, max_new_tokens, eos, source, valid=valid)

    def _check_target(self, target: Any, valid: Valid, source: Tensor | None = None) -> None:
        check_tokens(f"{self.who}: target", target, valid, self.target_embedding.table.weight)
        if source is not None and target.shape[0] != source.shape[0]:
            raise ShapeError(
                f"{self.who}: target has batch {len(target)}, the source {len(source)}"
            )


def transformer_base(vocab_size: int = 37_000, *, max_len: int = 1024) -> TransformerConfig:
    """Returns the paper's base: 65 million parameters with its 37,000 shared byte pairs (63 here: it does not say how it counts)."""
    return TransformerConfig(
        vocab_size=vocab_size,
        dim=512,
        num_heads=8,
        num_layers=6,
        max_len=max_len,
        feed_forward="relu",
        feed_forward_bias=True,
        norm_first=False,
        dropout=0.1,
    )


def transformer_big(vocab_size: int = 37_000, *, max_len: int = 1024) -> TransformerConfig:
    """Returns the paper's big: 213 million parameters with its 37,000 shared byte pairs (214 here)."""
    base = transformer_base(vocab_size, max_len=max_len)
    return replace(base, dim=1024, num_heads=16, dropout=0.3)


def transformer_small(vocab_size: int, *, max_len: int = 256) -> TransformerConfig:
    """Returns a configuration for small machines: pre-norm, which trains without a warm-up."""
    base = transformer_base(vocab_size, max_len=max_len)
    return replace(base, dim=128, num_heads=4, num_layers=2, norm_first=True)
