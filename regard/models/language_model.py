"""LanguageModel: a causal stack whose output matrix is its embedding, and generation through streaming states."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from regard.core import OptionError, ShapeError, UnsupportedError
from regard.core.shapes import check_positive
from regard.models.config import StackConfig
from regard.models.encoder import Encoder, State
from regard.models.sampling import check_sampling, sample

AnyState = TypeVar("AnyState")


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(StackConfig):
    name: ClassVar[str] = "language_model"

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

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T vocab"]:
        return self._logits(self.encoder(tokens, valid=valid))

    def _logits(self, hidden: Float[Tensor, "*b D"]) -> Float[Tensor, "*b vocab"]:
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
        self._check_generate(tokens, valid, max_new_tokens, eos)
        check_sampling(temperature, top_k, top_p)
        room = tokens.shape[1] + max_new_tokens - 1
        if self.encoder.limited:
            room = min(room, self.encoder.max_len)
        with _evaluating(self):
            state = self.initial_state(tokens.shape[0], max_len=room)
            hidden, state = self.encoder.extend(tokens, state, valid=valid, donate=True)
            last = hidden[:, -1] if valid is None else _last_valid(hidden, valid)
            ended = torch.zeros(tokens.shape[0], dtype=torch.bool, device=tokens.device)
            made: list[Tensor] = []
            while True:
                new = sample(
                    self._logits(last),
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    generator=generator,
                )
                if eos is not None:
                    new = new.masked_fill(ended, eos)
                    ended = ended | (new == eos)
                made.append(new)
                if len(made) == max_new_tokens or (eos is not None and bool(ended.all())):
                    return torch.stack(made, dim=1)
                hidden, state = self.encoder.extend(new[:, None], state, donate=True)
                last = hidden[:, 0]

    def _check_generate(
        self, tokens: Any, valid: Any, max_new_tokens: int, eos: int | None
    ) -> None:
        self.encoder.check_tokens(tokens, valid)
        check_positive(max_new_tokens=max_new_tokens)
        for mixer in self.encoder.mixers:
            if mixer.capabilities.streaming == "segment":
                raise UnsupportedError(
                    f"{mixer.name} does not support generate: its streaming equals forward within one call only. "
                    "Call extend with segments of your own choice."
                )
        if eos is not None and not (
            isinstance(eos, int) and not isinstance(eos, bool) and 0 <= eos < self.config.vocab_size
        ):
            raise OptionError(
                f"eos ({eos!r}) must be a token id below vocab_size ({self.config.vocab_size})"
            )
        longest = tokens.shape[1]
        if valid is not None:
            counts = valid.sum(1)
            longest = int(counts.max())
            if int(counts.min()) == 0:
                raise ShapeError(
                    f"{self.encoder.who}: a prompt without any valid token has nothing to follow"
                )
        if self.encoder.limited and longest + max_new_tokens - 1 > self.encoder.max_len:
            raise ShapeError(
                f"{self.encoder.who}: a prompt of {longest} tokens and max_new_tokens ({max_new_tokens}) "
                f"exceed max_len ({self.encoder.max_len})"
            )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every module is in the mode that it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _last_valid(hidden: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    last = torch.where(valid, torch.arange(valid.shape[1], device=valid.device), -1).amax(1)
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), last]


def reorder(state: AnyState, index: Int[Tensor, "b"]) -> AnyState:
    """The rows of a streaming state (a mixer's or a model's) in the order of `index`: beams, or a smaller batch."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.index_select(0, index), state)
