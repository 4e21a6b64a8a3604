"""HAN: hierarchical attention network (Yang et al. 2016, NAACL, Hierarchical Attention Networks for Document Classification).

    h_it = biGRU(E[w_it])      s_i = pool_t(h_it)      words of a sentence
    h_i  = biGRU(s_i)          v   = pool_i(h_i)       sentences of a document;   y = W v + b

pool is context_query, or any of POOLS that needs no query: mean and max are the paper's baselines. `word_encoder` and
`sentence_encoder` are "gru"; "convolution" of five words and a relu (Kim 2014, arXiv 1408.5882); "none", a linear layer of each
word; or the name of a mixer: a linear layer, sinusoidal positions and one block. `flat` reads a document as one sentence, v = s, and
has no second level. Words that are not valid, and sentences without words, are as if absent: the
backward GRU starts at the last word. Cost: S T GRU steps, of which T + S one after another.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core import (
    Mask,
    OptionError,
    ShapeError,
    check_divisible,
    compaction,
    existing,
    is_dense,
    one_row,
    permute,
    shown,
)
from regard.functional.rows import first_places
from regard.mixers.build import build
from regard.models.blocks import Block
from regard.models.config import Logits, Model, ModelConfig, Options, check_mixer
from regard.models.tokens import check_tokens
from regard.nn import FEED_FORWARDS
from regard.pools import Pool, build_pool
from regard.positions import Sinusoidal

Words = Int[Tensor, "B S T"]
WordsValid = Bool[Tensor, "B S T"]


class HANConfig(ModelConfig):
    """The configuration of HAN, with the sizes of the paper: dim of word vectors, hidden_dim of the GRU in each direction.

    pool and pool_options are those of both levels. num_heads, max_len and the options are for mixers in the place of a GRU.

    Args:
        attention_dim: channels of the hidden layer of context_query
        word_encoder: reader of words: gru, convolution, none or a mixer
        sentence_encoder: reader of sentences: gru, convolution, none or a mixer
        word_encoder_options: options of word_encoder, where it is a mixer
        sentence_encoder_options: options of sentence_encoder, where it is a mixer
        flat: True: a document is read as one sentence
    """

    name = "han"
    kinds = ("documents",)
    vocab_size: int
    num_classes: int
    dim: int = 200
    hidden_dim: int = 50
    attention_dim: int = 100
    word_encoder: str = "gru"
    sentence_encoder: str = "gru"
    word_encoder_options: Options = field(default_factory=dict)
    sentence_encoder_options: Options = field(default_factory=dict)
    num_heads: int = 4
    max_len: int = 512
    pool: str | type[Pool] = "context_query"
    pool_options: Options = field(default_factory=dict)
    flat: bool = False

    def __post_init__(self):
        _pool(self)
        for name in ("word_encoder", "sentence_encoder"):
            encoder = getattr(self, name)
            options = getattr(self, f"{name}_options")
            unread = self.flat and name == "sentence_encoder"
            if encoder in PLAIN or unread:
                if options:
                    what = "a flat model" if unread else repr(encoder)
                    raise OptionError(f"{name}_options must be empty: {what} has none")
            else:
                check_mixer(name, encoder, options)
                check_divisible(width=2 * self.hidden_dim, num_heads=self.num_heads)


class Reading(NamedTuple):
    """Logits, and the weights that led to them; weights are zero where there is no word or sentence."""

    logits: Logits
    words: Float[Tensor, "B S T"]
    sentences: Float[Tensor, "B S"]


def pad_documents(documents: Sequence[Sequence[Sequence[int]]]) -> tuple[Words, WordsValid]:
    """Returns tokens and valid of ragged documents, lists of sentences of word ids; any of them may be empty.

    Raises ShapeError for what is not that.
    """
    try:
        if isinstance(documents, Mapping | Set | str | bytes):
            raise TypeError(f"a {type(documents).__name__} is no list of sentences")
        ids = [[_sentence(words) for words in document] for document in documents]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"pad_documents: documents must be lists of sentences, and those lists of integer word ids: {error}"
        ) from None
    S = max([1, *map(len, ids)])
    T = max([1, *(len(sentence) for document in ids for sentence in document)])
    tokens = torch.zeros(len(ids), S, T, dtype=torch.long)
    valid = torch.zeros(len(ids), S, T, dtype=torch.bool)
    for b, document in enumerate(ids):
        for s, sentence in enumerate(document):
            tokens[b, s, : len(sentence)] = sentence
            valid[b, s, : len(sentence)] = True
    return tokens, valid


def _sentence(words: Sequence[int]) -> Int[Tensor, "n"]:
    ids = torch.as_tensor(words)
    whole = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
    if ids.ndim != 1 or not is_dense(ids) or ids.is_meta or (len(ids) and not whole):
        raise TypeError(f"one sentence is {shown(words)}")
    return ids


class HAN(Model):
    """model(tokens [B S T], valid=[B S T] | None) -> logits [B num_classes]; `read` gives the weights too."""

    name = "han"

    def __init__(self, config: HANConfig):
        super().__init__(config)
        width = 2 * config.hidden_dim
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.words = _encoder(config, config.word_encoder, config.word_encoder_options, config.dim)
        self.word_pool = _pool(config)
        self.sentences = self.sentence_pool = None
        if not config.flat:
            self.sentences = _encoder(
                config, config.sentence_encoder, config.sentence_encoder_options, width
            )
            self.sentence_pool = _pool(config)
        self.head = nn.Linear(width, config.num_classes)

    def forward(self, tokens: Words, *, valid: WordsValid | None = None) -> Logits:
        return self._read(tokens, valid, weights=False).logits

    def read(self, tokens: Words, *, valid: WordsValid | None = None) -> Reading:
        """Logits, and the weights of words in their sentences and of sentences in their documents.

        Of a flat model: the weights of words in their documents, and their sums over sentences.
        """
        return self._read(tokens, valid, weights=True)

    def _read(self, tokens: Tensor, valid: Tensor | None, *, weights: bool) -> Reading:
        check_tokens(self.name, tokens, valid, self.embedding.weight, axes=("S", "T"))
        valid = existing(tokens, valid)
        B, S, T = tokens.shape
        rows = (B, S * T) if self.sentences is None else (B * S, T)
        h = self.embedding(tokens.masked_fill(~valid, 0).reshape(rows))
        h, words = _level(self.words, self.word_pool, h, valid.reshape(rows), weights)
        words = words.view(B, S, T)
        if self.sentences is None or self.sentence_pool is None:
            return Reading(self.head(h), words, words.sum(-1))
        h, exists = h.unflatten(0, (B, S)), valid.any(-1)
        h, sentences = _level(self.sentences, self.sentence_pool, h, exists, weights)
        return Reading(self.head(h), words, sentences)


def _level(
    encoder: nn.Module,
    pool: Pool,
    x: Float[Tensor, "N T D"],
    valid: Bool[Tensor, "N T"],
    weights: bool,
) -> tuple[Float[Tensor, "N F"], Float[Tensor, "N T"]]:
    """Summary and weights of each sequence; zeros in the place of weights that are not asked for."""
    order = compaction(valid)
    h = encoder(order.of(x), order.valid)
    found = pool.weights(h, valid=order.valid)[:, 0] if weights else h.new_zeros(valid.shape)
    return pool(h, valid=order.valid)[:, 0], permute(found, order.target)


def _pool(config: HANConfig) -> Pool:
    options = dict(config.pool_options)
    if config.pool == "context_query":
        options.setdefault("hidden_dim", config.attention_dim)
    pool = build_pool(config.pool, 2 * config.hidden_dim, **options)
    if pool.query_dim is not None or pool.num_queries not in (None, 1):
        raise OptionError(
            f"han: pool {pool.name} must make one summary without a query: context_query, mean or max"
        )
    return pool


class Convolution(nn.Module):
    """relu of a convolution over five tokens."""

    def __init__(self, dim: int, width: int):
        super().__init__()
        self.convolution = nn.Conv1d(dim, width, 5, padding="same")

    def forward(self, x, valid):
        return self.convolution(x.mT).mT.relu()


class BiGRU(nn.Module):
    """A GRU in both directions, half of F each."""

    def __init__(self, dim: int, width: int):
        super().__init__()
        self.gru = nn.GRU(dim, width // 2, batch_first=True, bidirectional=True)

    def forward(self, x, valid):
        if len(x) == 0:
            return self(one_row(x), one_row(valid))[:0]
        lengths = valid.sum(1).clamp_min(1).cpu()  # an empty one is read as one zero
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = self.gru(packed)
        return pad_packed_sequence(hidden, batch_first=True, total_length=x.shape[1])[0]


class Mixed(nn.Module):
    """A linear layer of each token alone; with a block, positions and the block follow."""

    def __init__(self, dim: int, width: int, block: Block | None = None):
        super().__init__()
        self.into = nn.Linear(dim, width)
        self.block = block
        self.position = Sinusoidal(dim=width)

    def forward(self, x, valid):
        x = self.into(x)
        if self.block is None:
            return x
        return self.block(self.position(x, first_places(x)), mask=Mask(valid=valid))


PLAIN: Mapping[str, Callable[[int, int], nn.Module]] = {
    "gru": BiGRU,
    "convolution": Convolution,
    "none": Mixed,
}
"""Encoders without a mixer, by name: x [N T D], valid tokens first -> [N T F], whatever where a token is not valid."""


def _encoder(config: HANConfig, encoder: str, options: Options, dim: int) -> nn.Module:
    width = 2 * config.hidden_dim
    if encoder in PLAIN:
        return PLAIN[encoder](dim, width)
    mixer = build(encoder, dim=width, num_heads=config.num_heads, max_len=config.max_len, **options)
    mixer.require("bidirectional")
    mixer.require("padding")
    ffn = None if mixer.capabilities.includes_ffn else FEED_FORWARDS["gelu"](width)
    return Mixed(dim, width, Block(width, mixer, ffn))
