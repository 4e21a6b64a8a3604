"""Encoder: embedded tokens, positions, a stack of blocks, a final norm. Bidirectional or causal, whole or streamed."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import (
    CheckedModule,
    Mask,
    Mixer,
    OptionError,
    Positions,
    Streamed,
    UnsupportedError,
    as_state,
    clear,
)
from regard.models.blocks import Blocks, ReversibleBlocks, States, make_blocks
from regard.models.config import StackConfig
from regard.models.tokens import (
    Hidden,
    Numbers,
    Places,
    Tokens,
    Valid,
    check_length,
    check_like,
    check_state,
    check_tokens,
    longest,
    looked_up,
    next_places,
    places,
)
from regard.nn.starts import NormalRows, normal_rows
from regard.positions import POSITIONS, AbsolutePosition, NoPosition, make


@as_state
class State(Streamed):
    blocks: States  # the state of each block's mixer
    length: Int[Tensor, "B"]


class Embedding(nn.Module):
    """sqrt(D) E[token] + position, normed if so configured; rows of E with variance 1/D. `embedding_scale` replaces sqrt(D). Tokens that are not valid become zero."""

    def __init__(self, config: StackConfig, vocab_size: int):
        super().__init__()
        position = added_position(config)
        scale = config.embedding_scale
        self.scale = config.dim**0.5 if scale is None else scale
        self.table = NormalRows(vocab_size, config.dim)
        normal_rows(self.table, std=config.dim**-0.5)
        self.position = position
        self.norm = config.norm_if(config.embedding_norm, config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tokens, position: Positions, valid: Valid) -> Hidden:
        x = self.scale * looked_up(self.table, tokens, valid)
        x = self.dropout(self.norm(self.position(x, position)))
        return x if valid is None else clear(x, valid)


class Streams(CheckedModule):
    """Base of stacks of blocks over tokens, which stream where they are causal. who: how errors name it."""

    who: str
    causal: bool
    embedding: Any
    blocks: Blocks | ReversibleBlocks
    norm: nn.Module

    @property
    def mixers(self) -> list[Mixer]:
        return self.blocks.mixers

    @abstractmethod
    def _embedded(self, tokens: Tokens, state: State, valid: Valid, documents: Numbers) -> Hidden:
        """The tokens that follow this state. Raises ShapeError beyond the greatest length."""

    def check_tokens(self, tokens: Tokens, valid: Valid, documents: Numbers = None) -> None:
        check_tokens(self.who, tokens, valid, self.embedding.table.weight)
        if documents is not None:
            check_like(self.who, "documents", documents, tokens)

    def initial_state(self, batch_size: int, *, max_len: int | None = None) -> State:
        """The state before the first token; `max_len` reserves room. Raises UnsupportedError for a bidirectional model."""
        if not self.causal:
            raise UnsupportedError(
                f"{self.who} does not support streaming: it is bidirectional. Build or load a causal model."
            )
        blocks = tuple(mixer.initial_state(batch_size, max_len=max_len) for mixer in self.mixers)
        return State(blocks, torch.zeros_like(blocks[0].length))

    def extend(
        self,
        tokens: Tokens,
        state: State,
        *,
        valid: Valid = None,
        documents: Numbers = None,
        donate: bool = False,
    ) -> tuple[Float[Tensor, "B N width"], State]:
        """Hidden states of the next N tokens, and the state after them; any chunking gives what `forward` gives, unless a mixer streams by segments.

        documents: a new number begins with a new state; without them all tokens belong to the last document.
        Raises ShapeError for a state that is not of this model and batch, or beyond max_len.
        """
        self.check_tokens(tokens, valid, documents)
        check_state(self.who, state, State, len(self.mixers), tokens)
        x = self._embedded(tokens, state, valid, documents)
        x, blocks = self.blocks.stream(
            x, state.blocks, valid=valid, documents=documents, donate=donate
        )
        return self.norm(x), State(blocks, blocks[0].length)


class Encoder(Streams):
    """tokens [B T] -> hidden [B T width]; width is D, or 2 D of a reversible stack. Where `valid` is False the output means nothing.

    `causal` is fixed at construction, where a mixer that cannot serve is refused with its reason.
    """

    def __init__(self, config: StackConfig, *, causal: bool = False):
        super().__init__()
        self.who = f"{type(self).__name__.lower()}({config.mixer_name})"
        if causal and config.global_tokens:
            raise OptionError(
                f"{self.who}: global_tokens ({config.global_tokens}) must be 0 in a causal stack, whose streams have none"
            )
        self.causal = causal
        self.embedding = Embedding(config, config.vocab_size)
        self.places = Places()
        self.blocks = make_blocks(config, causal=causal)
        self.config = config
        self.width = self.blocks.width
        self.norm = config.norm_if(config.norm_first, self.width)

    @property
    def max_len(self) -> int | None:
        return bound(self.config, self.embedding.position, self.mixers)

    @property
    def last_norm(self) -> nn.Module:
        """The norm whose output is that of the stack."""
        if self.config.norm_first:
            return self.norm
        block = cast(Any, self.blocks)[-1]
        return block.feed_forward_norm or block.mixer_norm

    def forward(
        self, tokens: Tokens, *, valid: Valid = None, documents: Numbers = None
    ) -> Float[Tensor, "B T width"]:
        """documents: tokens of unlike numbers are as if in rows of their own, each of at most max_len tokens.

        Raises ShapeError for token ids or lengths that do not fit.
        """
        self.check_tokens(tokens, valid, documents)
        place = self.places(tokens, valid, documents)
        length = tokens.shape[1] if documents is None else longest(place.flatten()) + 1
        check_length(self.who, "length", length, self.max_len)
        x = self.embedding(tokens, place, valid)
        marks = self.config.global_at(place, tokens.shape[0])
        mask = Mask(causal=self.causal, valid=valid, global_tokens=marks, documents=documents)
        return self.norm(self.blocks(x, mask=mask))

    def _embedded(self, tokens, state, valid, documents):
        if documents is None:
            place = next_places(self.who, tokens, state, valid, self.max_len)
        else:
            place = places(tokens, valid, documents) + tokens_before(state, valid, documents)
            check_length(self.who, "length", longest(place.flatten()) + 1, self.max_len)
        return self.embedding(tokens, place, valid)


def tokens_before(
    state: State, valid: Valid, documents: Numbers
) -> Int[Tensor, "B _"] | Literal[0]:
    """Tokens of its document that the state has before each new token: those of the last document may go on."""
    if documents is None:
        return state.length[:, None]
    if (last := state.blocks[0].document) is None:
        return 0
    same = documents == last[:, None]
    return state.length[:, None] * (same if valid is None else same & valid)


def added_position(config: StackConfig) -> AbsolutePosition:
    """The positions that are added to the embeddings; none where the mixers take them instead."""
    cls = POSITIONS[config.position]
    if cls.kind != "absolute":
        return NoPosition()
    return cast(AbsolutePosition, make(cls, config.facts, config.position_options))


def bound(config: StackConfig, position: AbsolutePosition, mixers: Iterable[Mixer]) -> int | None:
    """The greatest length; None where neither the positions nor a mixer bounds it."""
    if position.max_len is None and all(mixer.capabilities.any_length for mixer in mixers):
        return None
    return min(config.max_len, position.max_len or config.max_len)
