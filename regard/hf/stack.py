"""A checkpoint as a stack of mixers, `model(tokens, valid=valid)`, whose mixers can be read, observed and exchanged."""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask, Mixer, ShapeError, UnsupportedError, checked, shown
from regard.models.blocks import Block, Blocks
from regard.models.decoder import DecoderBlock
from regard.models.encoder import Streams, tokens_before
from regard.models.tokens import (
    Hidden,
    Numbers,
    Places,
    Source,
    SourceValid,
    TokenLogits,
    Tokens,
    Valid,
    check_tokens,
    longest,
)
from regard.nn.recorded import recorded


class TokenEmbedding(nn.Module):
    """Tokens, their positions and types, as far as a checkpoint has them; `offset` is the first position's row.

    scale: what the rows of tokens are multiplied by.
    """

    def __init__(
        self,
        word: nn.Embedding,
        *,
        place: nn.Embedding | None = None,
        kind: nn.Embedding | None = None,
        after: nn.Module | None = None,
        offset: int = 0,
        scale: float = 1.0,
    ):
        super().__init__()
        self.word = word
        self.place = place
        self.kind = kind
        self.offset = offset
        self.scale = scale
        self.places = Places()
        self.after = after or nn.Identity()

    @property
    def table(self) -> nn.Embedding:
        return self.word

    def forward(
        self,
        tokens: Tokens,
        valid: Valid,
        types: Tensor | None,
        after: Int[Tensor, "B _"] | Literal[0] | None = None,
        documents: Numbers = None,
    ) -> Hidden:
        """after: tokens that came before in each row, or before each token in its document; none by default."""
        if valid is not None:
            tokens = tokens.masked_fill(~valid, 0)  # padding may hold any id
        x = self.scale * self.word(tokens)
        if self.kind is not None:
            if types is not None:
                check_tokens("types", types, None, self.kind.weight)
            x = x + self.kind(torch.zeros_like(tokens) if types is None else types)
        elif types is not None:
            raise UnsupportedError(
                "this checkpoint does not support types: it has no table of them"
            )
        if self.place is not None:
            rows = self.places(tokens, valid, documents)
            most = tokens.shape[1]
            if after is not None:
                rows = rows + after
            room = self.place.num_embeddings - self.offset
            if after is not None or most > room:  # alone they are below T
                most = longest(rows.flatten()) + 1
            if most > room:
                raise ShapeError(
                    f"this checkpoint does not support {most} tokens: its table has {room} positions. "
                    "regard.hf.convert(model, 'softmax', max_len=...) tiles it."
                )
            x = x + self.place(rows + self.offset)
        return self.after(x)


class Stack(Streams):
    """tokens [B T] -> hidden [B T D]; where `valid` is False the output means nothing. `head` gives logits, if there is one."""

    who = "this checkpoint"
    blocks: Blocks

    def __init__(
        self,
        embedding: TokenEmbedding,
        blocks: list[Block],
        *,
        norm: nn.Module | None = None,
        head: nn.Module | None = None,
        causal: bool = False,
    ):
        super().__init__()
        self.embedding = embedding
        self.blocks = Blocks(blocks, embedding.word.embedding_dim)
        self.norm = norm or nn.Identity()
        self.head = head
        self.causal = causal
        self.left: tuple[str, ...] = ()
        self.origin = None

    @property
    def origin(self) -> dict[str, Any] | None:
        """What `save` writes, so that `load` builds it; None where a part was exchanged since."""
        made, parts = self._origin
        return made if parts == repr(self) else None

    @origin.setter
    def origin(self, made: dict[str, Any] | None) -> None:
        self._origin = made, repr(self)

    @property
    def streamed(self) -> list[Mixer]:
        """See GenerativeModel."""
        return self.mixers

    @checked
    def forward(
        self,
        tokens: Tokens,
        *,
        valid: Valid = None,
        types: Numbers = None,
        global_tokens: Bool[Tensor, "B T"] | None = None,
        documents: Numbers = None,
    ) -> Hidden:
        """documents: tokens of unlike numbers are as if in rows of their own."""
        self.check_tokens(tokens, valid, documents)
        x = self.embedding(tokens, valid, types, documents=documents)
        mask = Mask(self.causal, valid, None, global_tokens, documents)
        return self.norm(self.blocks(x, mask=mask))

    def _embedded(self, tokens, state, valid, documents):
        after = tokens_before(state, valid, documents)
        return self.embedding(tokens, valid, None, after, documents)

    @checked
    def attention_maps(
        self,
        tokens: Tokens,
        *,
        valid: Valid = None,
        types: Numbers = None,
        global_tokens: Bool[Tensor, "B T"] | None = None,
    ) -> list[Float[Tensor, "B H T T"]]:
        """The weights of every layer."""
        with recorded(self) as calls:
            self(tokens, valid=valid, types=types, global_tokens=global_tokens)
        return [call.attention_map() for call in calls]


class EncoderDecoder(nn.Module):
    """source [B S], target [B T] -> hidden [B T D] of the decoder; `logits(hidden)`."""

    def __init__(
        self,
        encoder: Stack,
        embedding: TokenEmbedding,
        blocks: list[DecoderBlock],
        norm: nn.Module,
        head: nn.Module,
        scale: float = 1.0,
    ):
        super().__init__()
        self.encoder = encoder
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.head = head
        self.scale = scale
        self.left: tuple[str, ...] = ()

    @checked
    def forward(
        self,
        source: Source,
        target: Tokens,
        *,
        source_valid: SourceValid = None,
        target_valid: Valid = None,
    ) -> Hidden:
        check_tokens("target", target, target_valid, self.embedding.table.weight)
        context = self.encoder(source, valid=source_valid)
        mask = Mask(causal=True, valid=target_valid)
        cross = Mask(valid=source_valid)
        x = self.embedding(target, target_valid, None)
        for block in self.blocks:
            x = block(x, context, mask=mask, seen=cross)
        return self.norm(x)

    @checked
    def logits(self, hidden: Hidden) -> TokenLogits:
        if hidden.shape[-1] != self.head.in_features:
            raise ShapeError(
                f"this checkpoint: hidden must have width {self.head.in_features}, got {shown(hidden)}"
            )
        return self.head(hidden * self.scale)
