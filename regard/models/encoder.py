"""Encoder: embedded tokens, positions, a stack of blocks, a final norm. Bidirectional or causal, whole or streamed."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask, Mixer, OptionError, ShapeError, UnsupportedError
from regard.core.shapes import check_batch_size
from regard.core.states import Streamed, as_state
from regard.models.blocks import make_blocks
from regard.models.config import StackConfig
from regard.models.tokens import check_tokens, counts_tokens, longest, places
from regard.nn import NORMS
from regard.nn.starts import NormalRows, normal_rows
from regard.positions import POSITIONS, AbsolutePosition, NoPosition, make


@as_state
class State(Streamed):
    blocks: tuple[Any, ...]  # the state of each block's mixer
    length: Int[Tensor, "B"]


class Embedding(nn.Module):
    """sqrt(D) E[token] + position, normed if so configured; rows of E with variance 1/D. Tokens that are not valid become zero."""

    def __init__(self, config: StackConfig, position: AbsolutePosition, vocab_size: int):
        super().__init__()
        self.scale = math.sqrt(config.dim)
        self.table = NormalRows(vocab_size, config.dim)
        normal_rows(self.table, std=1 / self.scale)
        self.position = position
        self.norm = NORMS[config.norm](config.dim) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        position: Int[Tensor, "b T"],
        valid: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        if valid is None:
            return self._placed(self.scale * self.table(tokens), position)
        x = self.scale * self.table(tokens.masked_fill(~valid, 0))
        cleared = _cleared(x, valid)  # before the norm, whose gradient would carry what it holds
        return _cleared(self._placed(cleared, position), valid)

    def _placed(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"]
    ) -> Float[Tensor, "B T D"]:
        return self.dropout(self.norm(self.position(x, position)))


class Encoder(nn.Module):
    """tokens [B T] -> hidden [B T width]; width is D, or 2 D of a reversible stack. Where `valid` is False the output means nothing.

    `causal` is fixed at construction, where a mixer that cannot serve is refused with its reason.
    """

    def __init__(self, config: StackConfig, *, causal: bool = False):
        super().__init__()
        self.who = f"{type(self).__name__.lower()}({config.mixer_name})"
        if causal and config.has_globals:
            raise OptionError(
                f"{self.who}: global_tokens ({config.global_tokens}), global_every and global_ids must name none in a "
                "causal stack, whose streams have none"
            )
        position = added_position(config)
        self.causal, self.vocab_size = causal, config.vocab_size
        self.max_len = min(config.max_len, position.max_len or config.max_len)
        self.embedding = Embedding(config, position, config.vocab_size)
        self.blocks = make_blocks(config, causal=causal)
        self.global_at, self.width = config.global_at, self.blocks.width
        self.norm = NORMS[config.norm](self.width) if config.norm_first else nn.Identity()

    @property
    def mixers(self) -> list[Mixer]:
        return self.blocks.mixers

    @property
    def limited(self) -> bool:
        """True if `max_len` bounds the length: by the positions, or by a mixer."""
        return self.embedding.position.max_len is not None or not all(
            m.capabilities.any_length for m in self.mixers
        )

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T width"]:
        """Raises ShapeError for token ids or lengths that do not fit."""
        self.check_tokens(tokens, valid)
        if self.limited and tokens.shape[1] > self.max_len:
            raise ShapeError(
                f"{self.who}: length ({tokens.shape[1]}) exceeds max_len ({self.max_len})"
            )
        place = places(tokens, valid)
        x = self.embedding(tokens, place, valid)
        mask = Mask(causal=self.causal, valid=valid, global_tokens=self.global_at(place, tokens))
        return self.norm(self.blocks(x, mask=mask))

    def check_tokens(self, tokens: object, valid: Bool[Tensor, "B T"] | None) -> None:
        check_tokens(
            self.who,
            tokens,
            valid,
            vocab_size=self.vocab_size,
            device=self.embedding.table.weight.device,
        )

    def initial_state(self, batch_size: int, *, max_len: int | None = None) -> State:
        """The state before the first token; `max_len` reserves room. Raises UnsupportedError for a bidirectional model."""
        if not self.causal:
            raise UnsupportedError(
                f"{self.who} does not support streaming: it is bidirectional. Build a causal model."
            )
        check_batch_size(batch_size)
        blocks = tuple(mixer.initial_state(batch_size, max_len=max_len) for mixer in self.mixers)
        return State(
            blocks,
            torch.zeros(batch_size, dtype=torch.long, device=self.embedding.table.weight.device),
        )

    def extend(
        self,
        tokens: Int[Tensor, "B N"],
        state: State,
        *,
        valid: Bool[Tensor, "B N"] | None = None,
        donate: bool = False,
    ) -> tuple[Float[Tensor, "B N width"], State]:
        """The next N tokens of each row, and the state after them; any chunking gives what `forward` gives, unless a mixer streams by segments.

        Raises ShapeError for a state that is not of this model and batch, or beyond max_len.
        """
        self.check_tokens(tokens, valid)
        if (
            not isinstance(state, State)
            or not isinstance(state.blocks, tuple)
            or len(state.blocks) != len(self.mixers)
            or not counts_tokens(state.length, tokens)
        ):
            raise ShapeError(
                f"{self.who}: state must come from initial_state({tokens.shape[0]}) or extend of this model"
            )
        length = state.length + (tokens.shape[1] if valid is None else valid.sum(1))
        if self.limited and (most := longest(length)) > self.max_len:
            raise ShapeError(
                f"{self.who}: state length + new tokens ({most}) exceeds max_len ({self.max_len})"
            )
        x = self.embedding(tokens, state.length[:, None] + places(tokens, valid), valid)
        x, blocks = self.blocks.stream(x, state.blocks, valid=valid, donate=donate)
        return self.norm(x), State(blocks, length)


def added_position(config: StackConfig, *, max_len: int | None = None) -> AbsolutePosition:
    """The positions that are added to the embeddings; none where the mixers take them instead.

    max_len: what they are made for, the configuration's by default.
    """
    cls = POSITIONS[config.position]
    if cls.kind != "absolute":
        return NoPosition()
    facts = {"dim": config.dim, "max_len": max_len or config.max_len, "num_heads": config.num_heads}
    made = make(cls, facts, config.position_options)
    assert isinstance(made, AbsolutePosition)
    return made


def _cleared(x: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    return torch.where(valid[..., None], x, x.new_zeros(()))
