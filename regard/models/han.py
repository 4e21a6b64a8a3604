"""HAN: hierarchical attention network (Yang et al. 2016, NAACL, Hierarchical Attention Networks for Document Classification).

    h_it = biGRU(E[w_it])      s_i = pool_t(h_it)      words of a sentence
    h_i  = biGRU(s_i)          v   = pool_i(h_i)       sentences of a document;   y = W v + b

Both pools are context_query. `word_encoder` and `sentence_encoder` are "gru" or the name of a mixer: a linear layer,
sinusoidal positions and one block then replace the GRU. Words that are not valid, and sentences without words, are as if absent: the
backward GRU starts at the last word. Cost: S T GRU steps, of which T + S one after another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core import Mask, OptionError, ShapeError
from regard.core.compaction import compaction, permute
from regard.core.empty_batch import one_row
from regard.core.options import shown
from regard.core.shapes import check_divisible, check_mapping, is_dense
from regard.mixers.build import build
from regard.models.block import Block
from regard.models.config import Model, ModelConfig, check_mixer
from regard.nn import FEED_FORWARDS
from regard.pools.context_query import ContextQuery
from regard.positions import Sinusoidal


@dataclass(frozen=True, kw_only=True)
class HANConfig(ModelConfig):
    """Sizes of the paper: dim of word vectors, hidden_dim of the GRU in each direction, attention_dim of the pools.

    num_heads, max_len and the options are for mixers in the place of a GRU.
    """

    name: ClassVar[str] = "han"
    kinds = ("documents",)
    vocab_size: int
    num_classes: int
    dim: int = 200
    hidden_dim: int = 50
    attention_dim: int = 100
    word_encoder: str = "gru"
    sentence_encoder: str = "gru"
    word_encoder_options: Mapping[str, Any] = field(default_factory=dict)
    sentence_encoder_options: Mapping[str, Any] = field(default_factory=dict)
    num_heads: int = 4
    max_len: int = 512

    def __post_init__(self):
        for name in ("word_encoder", "sentence_encoder"):
            encoder, options = getattr(self, name), getattr(self, f"{name}_options")
            if encoder == "gru":
                if check_mapping(f"{name}_options", options):
                    raise OptionError(f"{name}_options must be empty: a GRU has none")
            else:
                check_mixer(name, encoder, options)
                check_divisible(width=2 * self.hidden_dim, num_heads=self.num_heads)

    def build(self) -> "HAN":
        return HAN(self)


class Reading(NamedTuple):
    """Logits, and the weights that led to them; weights are zero where there is no word or sentence."""

    logits: Float[Tensor, "B num_classes"]
    words: Float[Tensor, "B S T"]
    sentences: Float[Tensor, "B S"]


def pad_documents(
    documents: Sequence[Sequence[Sequence[int]]],
) -> tuple[Int[Tensor, "B S T"], Bool[Tensor, "B S T"]]:
    """tokens and valid of ragged documents, lists of sentences of word ids; any of them may be empty.

    Raises ShapeError for what is not that.
    """
    try:
        ids = [[torch.as_tensor(sentence) for sentence in document] for document in documents]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(f"pad_documents: {_DOCUMENTS}: {error}") from None
    for found in (found for document in ids for found in document):
        if found.dim() != 1 or (len(found) and found.dtype not in _IDS):
            raise ShapeError(
                f"pad_documents: {_DOCUMENTS}, and one sentence is {found.dtype} {list(found.shape)}"
            )
    S = max([1, *(len(document) for document in ids)])
    T = max([1, *(len(sentence) for document in ids for sentence in document)])
    tokens = torch.zeros(len(ids), S, T, dtype=torch.long)
    valid = torch.zeros(len(ids), S, T, dtype=torch.bool)
    for b, document in enumerate(ids):
        for s, sentence in enumerate(document):
            tokens[b, s, : len(sentence)] = sentence
            valid[b, s, : len(sentence)] = True
    return tokens, valid


_DOCUMENTS = "documents must be lists of sentences, and those lists of integer word ids"
_IDS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class HAN(Model):
    """model(tokens [B S T], valid=[B S T] | None) -> logits [B num_classes]; `read` gives the weights too."""

    name = "han"

    def __init__(self, config: HANConfig):
        super().__init__()
        self.config = config
        width = 2 * config.hidden_dim
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.words = _encoder(config, config.word_encoder, config.word_encoder_options, config.dim)
        self.word_pool = ContextQuery(width, hidden_dim=config.attention_dim)
        self.sentences = _encoder(
            config, config.sentence_encoder, config.sentence_encoder_options, width
        )
        self.sentence_pool = ContextQuery(width, hidden_dim=config.attention_dim)
        self.head = nn.Linear(width, config.num_classes)

    def forward(
        self, tokens: Int[Tensor, "B S T"], *, valid: Bool[Tensor, "B S T"] | None = None
    ) -> Float[Tensor, "B num_classes"]:
        return self.read(tokens, valid=valid).logits

    def read(
        self, tokens: Int[Tensor, "B S T"], *, valid: Bool[Tensor, "B S T"] | None = None
    ) -> Reading:
        """Logits, and the weights of words in their sentences and of sentences in their documents."""
        self._check(tokens, valid)
        B, S, T = tokens.shape
        if valid is None:
            valid = torch.ones_like(tokens, dtype=torch.bool)
        word_valid, sentence_valid = valid.flatten(0, 1), valid.any(-1)
        h = self.embedding(tokens.masked_fill(~valid, 0).flatten(0, 1))
        sentences, words = _level(self.words, self.word_pool, h, word_valid)
        documents, weights = _level(
            self.sentences, self.sentence_pool, sentences.unflatten(0, (B, S)), sentence_valid
        )
        return Reading(self.head(documents), words.view(B, S, T), weights)

    def _check(self, tokens: object, valid: Tensor | None) -> None:
        if (
            not isinstance(tokens, Tensor)
            or not is_dense(tokens)
            or tokens.dim() != 3
            or 0 in tokens.shape[1:]
        ):
            raise ShapeError(
                f"han: tokens must be a tensor of ids [B, S >= 1, T >= 1], got {shown(tokens)}. pad_documents(...)?"
            )
        weight = self.embedding.weight
        if tokens.device != weight.device:
            raise ShapeError(f"han: tokens are on {tokens.device}, the model on {weight.device}.")
        if tokens.dtype not in (torch.int64, torch.int32):
            raise ShapeError(f"han: tokens must be int64 or int32 ids, got {tokens.dtype}")
        if valid is not None and (
            not isinstance(valid, Tensor)
            or not is_dense(valid)
            or valid.device != tokens.device
            or valid.dtype != torch.bool
            or valid.shape != tokens.shape
        ):
            raise ShapeError(
                f"han: valid must be boolean {list(tokens.shape)}, where the tokens are, got {shown(valid)}"
            )
        if torch.compiler.is_compiling() or tokens.device.type != "cpu":
            return
        ids = tokens if valid is None else tokens[valid]
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.config.vocab_size:
            raise ShapeError(
                f"han: token ids {int(ids.min())} to {int(ids.max())} do not lie in the vocabulary "
                f"(vocab_size {self.config.vocab_size})"
            )


def _level(
    encoder: nn.Module, pool: ContextQuery, x: Float[Tensor, "N T D"], valid: Bool[Tensor, "N T"]
) -> tuple[Float[Tensor, "N F"], Float[Tensor, "N T"]]:
    """Summary and weights of each sequence."""
    order = compaction(valid)
    x = torch.where(order.valid[..., None], permute(x, order.source), x.new_zeros(()))
    h = encoder(x, order.valid)
    weights = pool.weights(h, valid=order.valid)
    return (weights @ h)[:, 0], permute(weights[:, 0], order.target)


class BiGRU(nn.Module):
    """x [N T D], valid tokens first -> [N T 2F]; zero where a token is not valid."""

    def __init__(self, dim: int, hidden_dim: int):
        super().__init__()
        self.gru = nn.GRU(dim, hidden_dim, batch_first=True, bidirectional=True)

    def forward(
        self, x: Float[Tensor, "N T D"], valid: Bool[Tensor, "N T"]
    ) -> Float[Tensor, "N T F"]:
        if len(x) == 0:
            return self(one_row(x), one_row(valid))[:0]
        lengths = valid.sum(1).clamp(min=1).cpu()  # an empty one is read as one zero, and cleared
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.shape[1])
        return torch.where(valid[..., None], h, h.new_zeros(()))


class Mixed(nn.Module):
    """x [N T D], valid tokens first -> [N T F], by a linear layer, positions and a block of a mixer."""

    def __init__(self, config: HANConfig, mixer: str, options: Mapping[str, Any], dim: int):
        super().__init__()
        width = 2 * config.hidden_dim
        self.into = nn.Linear(dim, width)
        self.position = Sinusoidal(dim=width)
        made = build(
            mixer, dim=width, num_heads=config.num_heads, max_len=config.max_len, **options
        )
        made.require("bidirectional")
        made.require("padding")
        ffn = None if made.capabilities.includes_ffn else FEED_FORWARDS["gelu"](width)
        self.block = Block(width, made, ffn)

    def forward(
        self, x: Float[Tensor, "N T D"], valid: Bool[Tensor, "N T"]
    ) -> Float[Tensor, "N T F"]:
        place = torch.arange(x.shape[1], device=x.device)[None]
        h = self.block(self.position(self.into(x), place), mask=Mask(valid=valid))
        return torch.where(valid[..., None], h, h.new_zeros(()))


def _encoder(config: HANConfig, encoder: str, options: Mapping[str, Any], dim: int) -> nn.Module:
    if encoder == "gru":
        return BiGRU(dim, config.hidden_dim)
    return Mixed(config, encoder, options, dim)
