"""Models of the tasks whose published model has no place for a mixer: one of each, otherwise as plain as can be.

    permutation   h <- block(h | h_j with r_j <= r_i),  g <- block(g | h_j with r_j < r_i), the same weights; logits of g
                  (XLNet's two streams, arXiv 1906.08237, without its memory and segments)
    documents     words -> blocks -> context query -> sentences -> blocks -> context query     (HAN, with a mixer in each GRU's place)
    table         a token for each field, E[id] or x v, plus one learned vector for each field -> blocks -> mean
    vectors       the same, each number a field         (FT-Transformer's tokens, arXiv 2106.11959)

Each is a stack of ordinary blocks, so that all mechanisms get one width and one number of parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask
from regard.mixers.build import build
from regard.models.block import Block
from regard.models.blocks import Blocks, make_blocks
from regard.models.config import StackConfig
from regard.models.encoder import Embedding, added_position
from regard.models.tokens import places
from regard.models.two_streams import FactorizationOrder
from regard.nn import FEED_FORWARDS, NORMS
from regard.nn.fields import Field, FieldEmbedding
from regard.nn.starts import NormalRows, normal_rows
from regard.pools import build_pool


class TwoStreamConfig(StackConfig):
    name: ClassVar[str] = "two_streams"
    kinds = ("permutation_language_model",)

    def build(self) -> "TwoStreams":
        return TwoStreams(self)


class TwoStreams(nn.Module):
    """model(tokens [B T], order=[B T], valid=) -> logits [B T vocab_size] from context and lower ranks alone."""

    def __init__(self, config: TwoStreamConfig):
        super().__init__()
        self.embedding = Embedding(config, added_position(config), config.vocab_size)
        self.blocks = cast(Blocks, make_blocks(config, causal=False))
        for mixer in self.blocks.mixers:
            mixer.require("cross")
            mixer.require("pairwise")
        self.query = nn.Parameter(torch.empty(config.dim).normal_(std=0.02))
        self.norm = NORMS[config.norm](config.dim)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        order: Int[Tensor, "B T"],
        valid: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        place = places(tokens, valid)
        h = self.embedding(tokens, place, valid)
        g = self.embedding.position(self.query.expand_as(h), place)
        exists = torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid
        ranks = FactorizationOrder(order, exists, None)
        content, query = ranks.masks(exists[:, :0])
        for module in self.blocks:
            block = cast(Block, module)
            seen, asked = block.mixer_norm(h), block.mixer_norm(g)
            g = block.after_mixer(g, block.mixer(asked, context=seen, mask=query))
            h = block.after_mixer(h, block.mixer(seen, mask=content))
        return F.linear(self.norm(g), self.embedding.table.weight, self.bias)


class DocumentConfig(StackConfig):
    """Half of num_layers for words, half for sentences; max_len: of the longer."""

    name: ClassVar[str] = "document_reader"
    kinds = ("documents",)
    num_classes: int

    def build(self) -> "DocumentReader":
        return DocumentReader(self)


class DocumentReader(nn.Module):
    """model(tokens [B S T], valid=[B S T]) -> logits [B num_classes]"""

    def __init__(self, config: DocumentConfig):
        super().__init__()
        level = replace(config, num_layers=max(1, config.num_layers // 2))
        self.embedding = Embedding(config, added_position(config), config.vocab_size)
        self.words, self.sentences = (make_blocks(level, causal=False) for _ in range(2))
        for mixer in self.words.mixers:
            mixer.require("padding")
        self.word_norm, self.sentence_norm = (NORMS[config.norm](config.dim) for _ in range(2))
        self.word_pool, self.sentence_pool = (
            build_pool("context_query", config.dim) for _ in range(2)
        )
        self.head = nn.Linear(config.dim, config.num_classes)

    def forward(
        self, tokens: Int[Tensor, "B S T"], *, valid: Bool[Tensor, "B S T"] | None = None
    ) -> Float[Tensor, "B num_classes"]:
        valid = torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid
        rows, exists = tokens.flatten(0, 1), valid.flatten(0, 1)
        x = self.embedding(rows, places(rows, exists), exists)
        x = self.word_norm(self.words(x, mask=Mask(valid=exists)))
        s = self.word_pool(x, valid=exists)[:, 0].unflatten(0, tokens.shape[:2])
        exists = valid.any(-1)
        s = self.embedding.position(s, places(exists, exists))
        s = self.sentence_norm(self.sentences(s, mask=Mask(valid=exists)))
        return self.head(self.sentence_pool(s, valid=exists)[:, 0])


class FeaturesConfig(StackConfig):
    """fields of a table, or input_dim numbers of a vector. Their own vectors tell them apart: no positions are added."""

    name: ClassVar[str] = "features"
    kinds = ("table", "vectors")
    vocab_size: int = 1  # of no account: each field has its own
    fields: tuple[Field, ...] = ()
    input_dim: int | None = None
    num_tasks: int = 1

    def build(self) -> "Features":
        return Features(self)


class Features(nn.Module):
    """model(batch of fields, or x [B input_dim]) -> outputs [B num_tasks]; a missing field is its own vector alone."""

    def __init__(self, config: FeaturesConfig):
        super().__init__()
        count = config.input_dim or len(config.fields)
        self.embedding = (
            FieldEmbedding(config.fields, config.dim, std=1.0) if config.fields else None
        )
        self.scale = None if config.fields else nn.Parameter(torch.randn(count, config.dim))
        self.own = nn.Parameter(torch.randn(count, config.dim))
        self.blocks = make_blocks(config, causal=False)
        self.norm = NORMS[config.norm](config.dim)
        self.head = nn.Linear(config.dim, config.num_tasks)

    def forward(self, batch: Any) -> Float[Tensor, "B K"]:
        if self.embedding is not None:
            e = self.embedding(batch)[0]
        else:
            assert self.scale is not None
            e = batch[..., None] * self.scale
        return self.head(self.norm(self.blocks(e + self.own, mask=Mask())).mean(1))


class TokenReaderConfig(StackConfig):
    """One block and a readout at every token: what a screen of single layers trains."""

    name: ClassVar[str] = "token_reader"
    kinds = ("masked_language_model", "language_model")
    num_layers: int = 1
    position: str = "learned"
    num_classes: int = 0
    causal: bool = False

    def build(self) -> "TokenReader":
        return TokenReader(self)


class TokenReader(nn.Module):
    """model(tokens [B T], valid=None) -> logits [B T num_classes]

        x = E[token] + P[place],   x <- x + mixer(LN x),   x <- x + FFN(LN x),   logits = W LN x + b

    E starts as N(0, 1) and P as N(0, 1/4). The feed-forward layer is left out where the mixer includes one: one layer stays one layer,
    where the models of `regard.models` would count two such layers as one.
    """

    def __init__(self, config: TokenReaderConfig):
        super().__init__()
        self.config, dim = config, config.dim
        options = dict(dim=dim, num_heads=config.num_heads, max_len=config.max_len)
        mixer = build(config.mixer, **options, **config.mixer_options)  # type: ignore[arg-type]
        mixer.require("causal" if config.causal else "bidirectional")
        self.embedding = nn.Embedding(config.vocab_size, dim)
        self.position = NormalRows(config.max_len, dim)
        normal_rows(self.position, std=0.5)
        hidden = config.hidden_dim or 4 * dim
        ffn = None if mixer.capabilities.includes_ffn else FEED_FORWARDS["gelu"](dim, hidden)
        self.block = Block(dim, mixer, ffn)
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, config.num_classes)

    def forward(
        self, tokens: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T num_classes"]:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        marked = None if self.config.causal else self.config.global_at(place[None], tokens)
        mask = Mask(causal=self.config.causal, valid=valid, global_tokens=marked)
        x = self.embedding(tokens) + self.position(place)
        return self.readout(self.norm(self.block(x, mask=mask)))
