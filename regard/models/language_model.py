"""LanguageModel: a causal stack whose output matrix is its embedding, and generation through streaming states.

The two streams of a reversible stack, side by side, are twice as wide as the embedding and get a matrix of their own.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models.config import StackConfig
from regard.models.encoder import Encoder, State
from regard.models.sampling import check_sampling
from regard.models.search import (
    Beams,
    beam_search,
    check_beams,
    check_continuation,
    check_prompt,
    check_streams_exactly,
    evaluating,
    last_valid,
    sample_tokens,
)


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(StackConfig):
    name: ClassVar[str] = "language_model"
    kinds = ("language_model",)

    def build(self) -> "LanguageModel":
        return LanguageModel(self)


class LanguageModel(nn.Module):
    """model(tokens [B T], valid=[B T] | None) -> logits [B T vocab_size] of the next token.

    Raises UnsupportedError, with the mixer's reason, if the mixer cannot be causal.
    """

    name = "language_model"

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, causal=True)
        wider = self.encoder.width != config.dim
        self.own_logits = nn.Linear(self.encoder.width, config.vocab_size) if wider else None

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T vocab"]:
        return self._logits(self.encoder(tokens, valid=valid))

    def _logits(self, hidden: Float[Tensor, "*b D"]) -> Float[Tensor, "*b vocab"]:
        if self.own_logits is not None:
            return self.own_logits(hidden)
        return F.linear(hidden, self.encoder.embedding.table.weight)

    def initial_state(self, batch_size: int, *, max_len: int | None = None) -> State:
        """The state before the first token; `max_len` reserves room for so many."""
        return self.encoder.initial_state(batch_size, max_len=max_len)

    def extend(
        self,
        tokens: Int[Tensor, "B N"],
        state: State,
        *,
        valid: Bool[Tensor, "B N"] | None = None,
        donate: bool = False,
    ) -> tuple[Float[Tensor, "B N vocab"], State]:
        """Logits after each of the next N tokens, and the state; any chunking gives what `forward` gives."""
        hidden, state = self.encoder.extend(tokens, state, valid=valid, donate=donate)
        return self._logits(hidden), state

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
        Raises UnsupportedError if the mixer does not stream exactly, ShapeError if the result would exceed max_len.
        """
        check_sampling(temperature, top_k, top_p, generator)
        self._check(tokens, valid, max_new_tokens, eos)
        with evaluating(self):
            logits, state = self._read(tokens, valid, max_new_tokens)
            return sample_tokens(
                self._step,
                logits,
                state,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                generator=generator,
                eos=eos,
            )

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
        """The most likely continuations of each prompt; `regard.models.search` says what is kept and when it ends."""
        check_beams(beams, length_penalty)
        self._check(tokens, valid, max_new_tokens, eos)
        with evaluating(self):
            logits, state = self._read(tokens, valid, max_new_tokens)
            return beam_search(
                self._step,
                logits,
                state,
                beams=beams,
                max_new_tokens=max_new_tokens,
                length_penalty=length_penalty,
                eos=eos,
            )

    def _read(
        self, tokens: Tensor, valid: Tensor | None, max_new_tokens: int
    ) -> tuple[Float[Tensor, "B vocab"], State]:
        """Logits and state after the prompts."""
        room = tokens.shape[1] + max_new_tokens - 1
        if self.encoder.limited:
            room = min(room, self.encoder.max_len)
        state = self.initial_state(tokens.shape[0], max_len=room)
        hidden, state = self.encoder.extend(tokens, state, valid=valid, donate=True)
        return self._logits(last_valid(hidden, valid)), state

    def _step(self, new: Int[Tensor, "b 1"], state: State) -> tuple[Tensor, State]:
        hidden, state = self.encoder.extend(new, state, donate=True)
        return self._logits(hidden[:, 0]), state

    def _check(self, tokens: Any, valid: Any, max_new_tokens: int, eos: int | None) -> None:
        self.encoder.check_tokens(tokens, valid)
        check_continuation(max_new_tokens, eos, self.config.vocab_size)
        check_streams_exactly(self.encoder.mixers)
        max_len = self.encoder.max_len if self.encoder.limited else None
        check_prompt(self.encoder.who, tokens, valid, max_new_tokens, max_len)
