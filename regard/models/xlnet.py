"""XLNet: language modelling in any order of the tokens, by two streams of hidden states (Yang et al. 2019, arXiv 1906.08237).

    h_i <- Attn(Q = h_i, KV = h_j with r_j < r_i, or j = i)      content: what has been read, itself included; h^0 = E[x]
    g_i <- Attn(Q = g_i, KV = h_j with r_j < r_i)                query: knows its place, not its token;        g^0 = w
    each:  y = norm(x + Attn),  x <- norm(y + FFN(y)),  the same weights;     log p(x_i | those before) from the last g_i

r is the rank of each token in the order, which changes masks alone: positions stay those of the text. Rank -1 is context:
seen by all, and seeing all context; partial prediction predicts the last 1/K of an order and makes the rest context.
Attention is that of Transformer-XL with distances of both signs, a segment term, and biases of each layer's own. A memory
of earlier tokens, through which no gradient flows, is seen by all and counts as segment 0. A row that may see nothing
attends to nothing (the released masking makes it attend to everything, its own token too).

Cost: twice a Transformer-XL layer in pre-training; 1 + 1/K where g is made only for the predicted places (`num_predict`);
once in fine-tuning, which has no g. Left out: the reversed half of a batch; dropout on the sinusoids.
"""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask, ShapeError
from regard.core.memory import require_memory
from regard.core.options import Count, Depth, Rate, shown
from regard.core.request import compaction, permute
from regard.core.shapes import check_batch_size, check_divisible, check_positive, is_dense
from regard.core.states import Streamed, as_state
from regard.functional.relative import Segments, segment_bias
from regard.functional.rows import masked_softmax, recomputed
from regard.mixers.transformer_xl import TransformerXL
from regard.models.config import Model, ModelConfig
from regard.models.tokens import check_tokens, counts_tokens, longest
from regard.nn import FEED_FORWARDS, NORMS
from regard.nn.starts import NormalRows, normal_rows

CONTEXT = -1
"""The rank of a token that all may see."""


@dataclass(frozen=True, kw_only=True)
class TrunkConfig(ModelConfig, ABC):
    """Fields shared by pre-training and fine-tuning. checkpoint: every layer is computed again for its backward.

    Args:
        clamp_len: tokens: larger distances count as this one; None: no limit
    """

    vocab_size: int
    dim: int = 128
    num_heads: int = 4
    num_layers: Depth = 2
    hidden_dim: int | None = None
    clamp_len: int | None = None
    feed_forward: str = "gelu"
    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    checkpoint: bool = False

    def __post_init__(self):
        check_divisible(dim=self.dim, num_heads=self.num_heads)
        FEED_FORWARDS[self.feed_forward]


@dataclass(frozen=True, kw_only=True)
class XLNetConfig(TrunkConfig):
    """segment_len: `forward` reads so many tokens at a time, each part with the memory of those before; None: all at once.

    num_predict: the most tokens of a row (of a part, with segment_len) that are not context, and the places for which the
    query stream is made; context then has the logits of a query stream that is zero. None: every token.

    Args:
        mem_len: tokens of earlier calls that each layer keeps
        segment_len: tokens that are read at a time
        num_predict: most tokens of a row that are predicted; None: all
    """

    name: ClassVar[str] = "xlnet"
    kinds = ("permutation_language_model",)

    mem_len: Count = 0
    segment_len: int | None = None
    num_predict: int | None = None

    def build(self) -> "XLNet":
        return XLNet(self)


@as_state
class State(Streamed):
    memory: tuple[Float[Tensor, "B M D"], ...]  # one for each layer, newest token last
    length: Int[Tensor, "B"]  # tokens so far; min(length, M) rows of a memory are tokens


class FactorizationOrder(NamedTuple):
    """The rank of each token, which decides what it sees, and its segment; valid tokens come first in every row."""

    order: Int[Tensor, "B T"]
    valid: Bool[Tensor, "B T"]
    segments: Int[Tensor, "B T"] | None

    def masks(self, held: Bool[Tensor, "B M"], reuse: int) -> tuple[Mask, Mask]:
        """The masks of the content and the query stream. The first `reuse` tokens see no later ones, which see them all."""
        r, T = self.order, self.order.shape[1]
        place = torch.arange(T, device=r.device)
        later = place >= reuse
        before = (r[:, None, :] < r[:, :, None].clamp(min=0)) & (later[:, None] | ~later)
        before = (before | (later[:, None] & ~later)) & self.valid[:, None, :]
        itself = (place[:, None] == place) & self.valid[:, None, :]
        memory = held[:, None, :].expand(-1, T, -1)
        content, query = (torch.cat([memory, sees], dim=2) for sees in (before | itself, before))
        return Mask(pairwise=content[:, None]), Mask(pairwise=query[:, None])


class PredictedPlaces(NamedTuple):
    """The places that the query stream predicts, where it is not made for all."""

    place: Int[Tensor, "B P"]
    among_keys: Int[Tensor, "B P"]  # behind the memory
    allowed: Bool[Tensor, "B 1 P S"]
    segments: Int[Tensor, "B P"] | None

    @classmethod
    def of(cls, ranks: FactorizationOrder, query: Mask, most: int) -> "PredictedPlaces":
        """The places of the highest ranks."""
        place = ranks.order.topk(min(most, ranks.order.shape[1]), dim=1).indices
        assert query.pairwise is not None
        segments = None if ranks.segments is None else ranks.segments.gather(1, place)
        S = query.pairwise.shape[3]
        allowed = query.pairwise.gather(2, place[:, None, :, None].expand(-1, -1, -1, S))
        memory = S - ranks.order.shape[1]
        return cls(place, place + memory, allowed, segments)


class TwoStreamLayer(nn.Module):
    def __init__(self, config: TrunkConfig):
        super().__init__()
        self.mixer = TransformerXL(
            config.dim,
            num_heads=config.num_heads,
            clamp_len=config.clamp_len,
            segments=True,
            dropout=config.attention_dropout,
        )
        self.mixer_norm = NORMS["layer"](config.dim)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](
            config.dim, config.hidden_dim, bias=True, dropout=config.dropout
        )
        self.feed_forward_norm = NORMS["layer"](config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        h: Float[Tensor, "B T D"],
        g: Float[Tensor, "B _ D"] | None,
        memory: Float[Tensor, "B M D"],
        masks: tuple[Mask, Mask],
        segments: Int[Tensor, "B T"] | None,
        predicted: PredictedPlaces | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B _ D"] | None]:
        """Keys and values of both streams are those of h as it comes in; g has the places of `predicted`, or all."""
        seen = torch.cat([memory, h], dim=1)
        content, query = masks
        after = self._after(h, self._mix(h, seen, content, segments))
        if g is None:
            return after, None
        if predicted is None:
            return after, self._after(g, self._mix(g, seen, query, segments))
        return after, self._after(g, self._mix_predicted(g, seen, predicted, segments))

    def _mix(self, x: Tensor, seen: Tensor, mask: Mask, segments: Tensor | None) -> Tensor:
        if segments is None:
            return self.mixer(x, context=seen, mask=mask)
        return self.mixer.relate(x, segments, _of_keys(segments, seen), context=seen, mask=mask)

    def _mix_predicted(
        self, g: Tensor, seen: Tensor, predicted: PredictedPlaces, segments: Tensor | None
    ) -> Tensor:
        """`_mix` for queries at any places: their P S pairs with keys are gathered one by one."""
        mixer, S = self.mixer, seen.shape[1]
        q, k, v = mixer.heads.split(g, seen)
        key_place = torch.arange(S, device=g.device)[None]
        scores = mixer.position.scores(q, k, predicted.among_keys, key_place)
        if segments is not None:
            assert mixer.segment is not None and predicted.segments is not None
            ids = Segments(
                predicted.segments, _of_keys(segments, seen), mixer.segment.s, mixer.segment.b
            )
            scores = scores + segment_bias(q, ids, 1.0)(slice(0, g.shape[1]), slice(0, S))
        weights = masked_softmax(q.shape[-1] ** -0.5 * scores, predicted.allowed)
        weights = F.dropout(weights, mixer.dropout, self.training)
        return mixer.heads.merge(weights @ v)

    def _after(self, x: Tensor, mixed: Tensor) -> Tensor:
        y = self.mixer_norm(x + self.dropout(mixed))
        return self.feed_forward_norm(y + self.dropout(self.feed_forward(y)))


class Trunk(nn.Module):
    """Embedding and layers: what is trained first and then fine-tuned."""

    def __init__(self, config: TrunkConfig):
        super().__init__()
        self.checkpoint = config.checkpoint
        self.table = NormalRows(config.vocab_size, config.dim)
        normal_rows(self.table, std=0.02)
        self.layers = nn.ModuleList(TwoStreamLayer(config) for _ in range(config.num_layers))
        self.dropout = nn.Dropout(config.dropout)

    def embed(
        self, tokens: Int[Tensor, "B T"], valid: Bool[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T D"]:
        """E[token], and zero where `valid` is False."""
        if valid is None:
            return self.table(tokens)
        x = self.table(tokens.masked_fill(~valid, 0))
        return torch.where(valid[..., None], x, x.new_zeros(()))

    def empty(self, batch_size: int, mem_len: int) -> State:
        weight = self.table.weight
        memory = weight.new_zeros(batch_size, mem_len, weight.shape[1])
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        return State((memory,) * len(self.layers), length)

    def forward(
        self,
        h: Float[Tensor, "B T D"],
        g: Float[Tensor, "B T D"] | None,
        ranks: FactorizationOrder,
        state: State,
        *,
        reuse_len: int | None = None,
        num_predict: int | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"] | None, State]:
        """Both streams after the last layer, and the memories with the first `reuse_len` tokens (all by default).

        num_predict: g is made for the places of so many highest ranks, and is zero elsewhere.
        """
        M, T = state.memory[0].shape[1], h.shape[1]
        reuse = T if reuse_len is None else min(reuse_len, T)
        rows = torch.arange(M, device=h.device)
        masks = ranks.masks(rows >= M - state.length[:, None], reuse)
        added = ranks.valid[:, :reuse].sum(1)
        last = (added[:, None] + rows)[..., None].expand(-1, -1, h.shape[2])
        at = (
            None
            if g is None or num_predict is None
            else PredictedPlaces.of(ranks, masks[1], num_predict)
        )
        if g is not None and at is not None:
            g = g.gather(1, at.place[..., None].expand(-1, -1, g.shape[2]))
        h, g = self.dropout(h), None if g is None else self.dropout(g)
        memories = []
        for layer, memory in zip(self.layers, state.memory, strict=True):
            memories.append(torch.cat([memory, h[:, :reuse]], dim=1).detach().gather(1, last))
            given = (h, g, memory, masks, ranks.segments, at)
            h, g = recomputed(layer, *given, when=self.checkpoint, random=True)
        after = State(tuple(memories), state.length + added)
        if g is not None and at is not None:
            g = torch.zeros_like(h).scatter(1, at.place[..., None].expand_as(g), g)
        return self.dropout(h), None if g is None else self.dropout(g), after


class XLNet(Model):
    """model(tokens [B T], order=[B T], valid=[B T] | None) -> logits [B T vocab_size] of the token at each place.

    order: the rank of each token, -1 for context. Logits are given what is context or of lower rank, and never the token
    itself, except where it is context. segments [B T]: the part of a pair that a token belongs to.
    """

    name = "xlnet"

    def __init__(self, config: XLNetConfig):
        super().__init__()
        self.config = config
        self.trunk = Trunk(config)
        self.query = nn.Parameter(torch.empty(config.dim))
        self.bias = nn.Parameter(torch.empty(config.vocab_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.query, std=0.02)
        nn.init.zeros_(self.bias)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        order: Int[Tensor, "B T"],
        valid: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        """With segment_len, parts are read one after the other: an order then holds within each of them."""
        self._check(tokens, order, valid, segments)
        given = [order] if segments is None else [order, segments]
        back = None
        if valid is not None:
            source, back, valid = compaction(valid)
            tokens, *given = (permute(x, source) for x in (tokens, *given))
        state, parts = self.initial_state(tokens.shape[0]), []
        for columns in _cut(tokens.shape[1], self.config.segment_len):
            r, *s = (x[:, columns] for x in given)
            here = None if valid is None else valid[:, columns]
            g, state = self._read(tokens[:, columns], state, r, here, s[0] if s else None, None)
            parts.append(g)
        whole = torch.cat(parts, dim=1)
        return self._logits(whole if back is None else permute(whole, back))

    def initial_state(self, batch_size: int) -> State:
        """Empty memories; setting a row's `length` to 0 empties that row's again."""
        check_batch_size(batch_size)
        weight = self.trunk.table.weight
        size = batch_size * self.config.mem_len * self.config.dim * weight.itemsize
        require_memory("xlnet", "its state", size, weight.device, "Choose smaller sizes.")
        return self.trunk.empty(batch_size, self.config.mem_len)

    def extend(
        self,
        tokens: Int[Tensor, "B N"],
        state: State,
        *,
        order: Int[Tensor, "B N"],
        valid: Bool[Tensor, "B N"] | None = None,
        segments: Int[Tensor, "B N"] | None = None,
        reuse_len: int | None = None,
    ) -> tuple[Float[Tensor, "B N vocab"], State]:
        """Logits of the next N tokens, and the memories with the first `reuse_len` of them (all by default).

        Those are ordered apart from the rest: they never see it, and it sees all of them.
        Raises ShapeError for a state that is not of this model and batch.
        """
        self._check(tokens, order, valid, segments)
        if (
            not isinstance(state, State)
            or not isinstance(state.memory, tuple)
            or len(state.memory) != self.config.num_layers
            or not all(self._remembers(memory, tokens) for memory in state.memory)
            or not counts_tokens(state.length, tokens)
        ):
            raise ShapeError(
                f"xlnet: state must come from initial_state({tokens.shape[0]}) or extend of this model"
            )
        if reuse_len is not None:
            check_positive(reuse_len=reuse_len)
        if valid is None:
            g, state = self._read(tokens, state, order, None, segments, reuse_len)
            return self._logits(g), state
        source, back, valid = compaction(valid)
        tokens, order = permute(tokens, source), permute(order, source)
        segments = None if segments is None else permute(segments, source)
        g, state = self._read(tokens, state, order, valid, segments, reuse_len)
        return self._logits(permute(g, back)), state

    def _read(
        self,
        tokens: Tensor,
        state: State,
        order: Tensor,
        valid: Tensor | None,
        segments: Tensor | None,
        reuse_len: int | None,
    ) -> tuple[Float[Tensor, "B N D"], State]:
        h = self.trunk.embed(tokens, valid)
        here = torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid
        ranks = FactorizationOrder(order, here, segments)
        most = self.config.num_predict
        if most is not None and not torch.compiler.is_compiling() and order.device.type == "cpu":
            found = longest(((order != CONTEXT) & here).sum(1))
            if found > most:
                raise ShapeError(
                    f"xlnet: a row predicts {found} tokens, and num_predict is {most}. Raise it, or predict fewer."
                )
        _, g, state = self.trunk(
            h, self.query.expand_as(h), ranks, state, reuse_len=reuse_len, num_predict=most
        )
        return g, state

    def _logits(self, g: Float[Tensor, "B T D"]) -> Float[Tensor, "B T vocab"]:
        return F.linear(g, self.trunk.table.weight, self.bias)

    def _remembers(self, memory: object, tokens: Tensor) -> bool:
        """True if this can be the memory of a layer for these tokens."""
        weight = self.trunk.table.weight
        if not isinstance(memory, Tensor) or not is_dense(memory):
            return False
        like = memory.dtype == weight.dtype or torch.is_autocast_enabled(weight.device.type)
        wanted = (tokens.shape[0], self.config.mem_len, self.config.dim)
        return tuple(memory.shape) == wanted and like and memory.device == weight.device

    def _check(self, tokens: Tensor, order: object, valid: Tensor | None, segments: object) -> None:
        check_tokens(
            "xlnet",
            tokens,
            valid,
            vocab_size=self.config.vocab_size,
            device=self.trunk.table.weight.device,
        )
        for name, ids in [("order", order)] + [("segments", segments)] * (segments is not None):
            if (
                not isinstance(ids, Tensor)
                or not is_dense(ids)
                or ids.device != tokens.device
                or ids.shape != tokens.shape
                or ids.dtype not in (torch.int64, torch.int32)
            ):
                raise ShapeError(
                    f"xlnet: {name} must be int64 or int32 {list(tokens.shape)}, where the tokens are, got {shown(ids)}"
                )
        assert isinstance(order, Tensor)
        if torch.compiler.is_compiling() or order.device.type != "cpu":
            return
        ranks = order if valid is None else order[valid]
        if ranks.numel() and (least := int(ranks.min())) < CONTEXT:
            raise ShapeError(
                f"xlnet: order holds the rank {least}: ranks start at 0, and {CONTEXT} is context"
            )


def _of_keys(segments: Int[Tensor, "B T"], seen: Float[Tensor, "B S D"]) -> Int[Tensor, "B S"]:
    """Segments of memory and tokens: a memory is segment 0."""
    return F.pad(segments, (seen.shape[1] - segments.shape[1], 0))


def _cut(T: int, size: int | None) -> list[slice]:
    size = T if size is None else size
    return [slice(start, start + size) for start in range(0, T, size)]


def xlnet_base(vocab_size: int = 32_000) -> XLNetConfig:
    """117 million parameters, of which the embedding has 25."""
    return _published(vocab_size, dim=768, num_heads=12, num_layers=12)


def xlnet_large(vocab_size: int = 32_000) -> XLNetConfig:
    """360 million parameters, of which the embedding has 33; trained on 512 tokens, of which 256 enter the memory."""
    return _published(vocab_size, dim=1024, num_heads=16, num_layers=24)


def _published(vocab_size: int, *, dim: int, num_heads: int, num_layers: int) -> XLNetConfig:
    return XLNetConfig(
        vocab_size=vocab_size,
        dim=dim,
        num_heads=num_heads,
        num_layers=num_layers,
        mem_len=384,
        dropout=0.1,
        attention_dropout=0.1,
    )


def xlnet_small(vocab_size: int) -> XLNetConfig:
    """For small machines."""
    return XLNetConfig(
        vocab_size=vocab_size,
        dim=128,
        num_heads=4,
        num_layers=3,
        hidden_dim=256,
        dropout=0.1,
    )
