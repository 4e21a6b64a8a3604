"""LanguageModel: a causal stack whose output matrix is its embedding, and generation through streaming states.

The two streams of a reversible stack, side by side, are twice as wide as the embedding and get a matrix of their own. The gain of the last norm
begins small, so that the first loss is that of a uniform guess, ln V.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from regard.core import Mixer
from regard.models.config import StackConfig
from regard.models.encoder import Embedding, Encoder, State
from regard.models.generation import Beams, GenerativeModel, Sampling, Search
from regard.models.tokens import Numbers, TokenLogits, Tokens, Valid
from regard.nn.norm import first_gain, start_gain


class LanguageModelConfig(StackConfig):
    """A stack of causal blocks that predicts the next token; fields as in StackConfig.

    Args:
        tied: True: the output matrix is the embedding; False: it is another one
    """

    name = "language_model"
    kinds = ("language_model",)

    tied: bool = True


class LanguageModel(GenerativeModel):
    """model(tokens [B T], valid=[B T] | None) -> logits [B T vocab_size] of the next token.

    Raises UnsupportedError, with the mixer's reason, if the mixer cannot be causal.
    """

    name = "language_model"

    def __init__(self, config: LanguageModelConfig):
        super().__init__(config)
        self.encoder = Encoder(config, causal=True)
        width = self.encoder.width
        wider = width != config.dim
        own = wider or not config.tied
        self.own_logits = nn.Linear(width, config.vocab_size, bias=wider) if own else None
        start_gain(self.encoder.last_norm, first_gain(config.dim, config.vocab_size))
        self.who = self.encoder.who

    @property
    def target_embedding(self) -> Embedding:
        return self.encoder.embedding

    @property
    def max_target_len(self) -> int | None:
        return self.encoder.max_len

    @property
    def streamed(self) -> Sequence[Mixer]:
        return self.encoder.mixers

    def forward(
        self, tokens: Tokens, *, valid: Valid = None, documents: Numbers = None
    ) -> TokenLogits:
        """documents: tokens of unlike numbers are as if in rows of their own."""
        return self._logits(self.encoder(tokens, valid=valid, documents=documents))

    def initial_state(self, batch_size: int, *, max_len: int | None = None) -> State:
        """The state before the first token; `max_len` reserves room for so many."""
        return self.encoder.initial_state(batch_size, max_len=max_len)

    def _extend(self, *args, **how):
        return self.encoder.extend(*args, **how)

    def _logits(self, hidden):
        if self.own_logits is not None:
            return self.own_logits(hidden)
        return F.linear(hidden, self.encoder.embedding.table.weight)

    def generate(
        self,
        tokens: Tokens,
        *,
        valid: Valid = None,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
        eos: int | None = None,
    ) -> Tokens:
        """The N <= max_new_tokens tokens that follow each prompt; after `eos` a row holds `eos` only.

        Prompts of different lengths are padded on any side and marked by `valid`: each row gets what it would get
        alone. Temperature 0 takes the most likely token. Runs in eval mode, and leaves every module's mode as it was; of a model
        in training mode one thread at a time may ask for it.
        Raises UnsupportedError if a mixer does not stream, ShapeError if the result would exceed max_len.
        """
        sampling = Sampling(temperature, top_k, top_p, generator)
        self.encoder.check_tokens(tokens, valid)
        return self._go_on(sampling, tokens, valid, max_new_tokens, eos, len(tokens))

    def beam_search(
        self,
        tokens: Tokens,
        *,
        valid: Valid = None,
        max_new_tokens: int,
        beams: int = 4,
        length_penalty: float = 0.6,
        eos: int | None = None,
    ) -> Beams:
        """The most likely continuations of each prompt; see `regard.models.generation`."""
        search = Search(beams, length_penalty)
        self.encoder.check_tokens(tokens, valid)
        return self._go_on(search, tokens, valid, max_new_tokens, eos, len(tokens))
