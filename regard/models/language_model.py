"""LanguageModel: a causal stack whose output matrix is its embedding, and generation through streaming states.

The two streams of a reversible stack, side by side, are twice as wide as the embedding and get a matrix of their own.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mixer, UnsupportedError
from regard.models.config import StackConfig
from regard.models.encoder import Encoder, State
from regard.models.generation import Continuation, GenerativeModel, check_prompt, last_valid


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(StackConfig):
    """A stack of causal blocks that predicts the next token; fields as in StackConfig."""

    name: ClassVar[str] = "language_model"
    kinds = ("language_model",)

    def build(self) -> "LanguageModel":
        return LanguageModel(self)


class LanguageModel(GenerativeModel):
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
        """Logits after each of the next N tokens, and the state; any chunking gives what `forward` gives, unless a mixer streams by segments."""
        hidden, state = self.encoder.extend(tokens, state, valid=valid, donate=donate)
        return self._logits(hidden), state

    def read_prompt(self, tokens, valid, max_new_tokens, eos):
        encoder, config = self.encoder, self.config
        encoder.check_tokens(tokens, valid)
        check_streams_exactly(encoder.mixers)
        max_len = encoder.max_len if encoder.limited else None
        check_prompt(
            encoder.who,
            tokens,
            valid,
            max_new_tokens=max_new_tokens,
            max_len=max_len,
            eos=eos,
            vocab_size=config.vocab_size,
            state=None
            if max_len
            else lambda room: self.initial_state(tokens.shape[0], max_len=room),
        )
        room = min(tokens.shape[1] + max_new_tokens - 1, max_len or math.inf)
        state = self.initial_state(tokens.shape[0], max_len=int(room))
        hidden, state = encoder.extend(tokens, state, valid=valid, donate=True)
        logits = self._logits(last_valid(hidden, valid))
        return Continuation(self._step, logits, state, max_new_tokens, eos)

    def _step(self, new: Int[Tensor, "b 1"], state: State) -> tuple[Tensor, State]:
        hidden, state = self.encoder.extend(new, state, donate=True)
        return self._logits(hidden[:, 0]), state


def check_streams_exactly(mixers: Iterable[Mixer]) -> None:
    for mixer in mixers:
        if mixer.capabilities.streaming == "segment":
            raise UnsupportedError(
                f"{mixer.name} does not support generate: its streaming equals forward within one call only. "
                "Call extend with segments of your own choice."
            )
