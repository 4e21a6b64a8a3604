"""LanguageModel: a causal stack whose output matrix is its embedding, and generation through streaming states.

The two streams of a reversible stack, side by side, are twice as wide as the embedding and get a matrix of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mixer, UnsupportedError
from regard.models.config import StackConfig
from regard.models.encoder import Encoder, State
from regard.models.generation import (
    Beams,
    Continuation,
    GenerativeModel,
    Sampling,
    check_beams,
    evaluating,
)


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(StackConfig):
    """A stack of causal blocks that predicts the next token; fields as in StackConfig."""

    name = "language_model"
    kinds = ("language_model",)

    def build(self) -> "LanguageModel":
        return LanguageModel(self)


class LanguageModel(GenerativeModel):
    """model(tokens [B T], valid=[B T] | None) -> logits [B T vocab_size] of the next token.

    Raises UnsupportedError, with the mixer's reason, if the mixer cannot be causal.
    """

    name = "language_model"

    def __init__(self, config: LanguageModelConfig):
        super().__init__(config)
        self.encoder = Encoder(config, causal=True)
        wider = self.encoder.width != config.dim
        self.own_logits = nn.Linear(self.encoder.width, config.vocab_size) if wider else None

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T vocab"]:
        return self._logits(self.encoder(tokens, valid=valid))

    def initial_state(self, batch_size: int, *, max_len: int | None = None) -> State:
        """The state before the first token; `max_len` reserves room for so many."""
        return self.encoder.initial_state(batch_size, max_len=max_len)

    def _extend(self, tokens, state, valid, donate):
        return self.encoder.extend(tokens, state, valid=valid, donate=donate)

    def _logits(self, hidden):
        if self.own_logits is not None:
            return self.own_logits(hidden)
        return F.linear(hidden, self.encoder.embedding.table.weight)

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        valid: Bool[Tensor, "B T"] | None = None,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
        eos: int | None = None,
    ) -> Int[Tensor, "B N"]:
        """The N <= max_new_tokens tokens that follow each prompt; after `eos` a row holds `eos` only.

        Prompts of different lengths are padded on any side and marked by `valid`: each row gets what it would get
        alone. Temperature 0 takes the most likely token. Runs in eval mode, and leaves every module's mode as it was.
        Raises UnsupportedError if a mixer does not stream, ShapeError if the result would exceed max_len.
        """
        sampling = Sampling(temperature, top_k, top_p, generator)
        with evaluating(self):
            return self._read(tokens, valid, max_new_tokens, eos).sampled(sampling)

    @torch.no_grad()
    def beam_search(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        valid: Bool[Tensor, "B T"] | None = None,
        max_new_tokens: int,
        beams: int = 4,
        length_penalty: float = 0.6,
        eos: int | None = None,
    ) -> Beams:
        """The most likely continuations of each prompt; see `regard.models.generation`."""
        check_beams(beams, length_penalty)
        with evaluating(self):
            prompt = self._read(tokens, valid, max_new_tokens, eos)
            return prompt.searched(beams, length_penalty)

    def _read(
        self, tokens: Tensor, valid: Tensor | None, max_new_tokens: int, eos: int | None
    ) -> Continuation:
        encoder = self.encoder
        encoder.check_tokens(tokens, valid)
        self._check_streaming()
        return self._begin(
            tokens,
            valid,
            max_new_tokens,
            eos,
            who=encoder.who,
            vocab_size=self.config.vocab_size,
            max_len=encoder.max_len,
            initial_state=lambda room: self.initial_state(len(tokens), max_len=room),
        )

    def _check_streaming(self) -> None:
        check_streams_exactly(self.encoder.mixers)


def check_streams_exactly(mixers: Iterable[Mixer]) -> None:
    for mixer in mixers:
        if mixer.capabilities.streaming == "segment":
            raise UnsupportedError(
                f"{mixer.name} does not support generate: its streaming equals forward within one call only. "
                "Call extend with segments of your own choice."
            )
