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

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import (
    Count,
    ShapeError,
    Streamed,
    as_state,
    check_option,
    clear,
    compaction,
    existing,
    is_mapped,
    permute,
    require_all,
)
from regard.core.memory import require_memory
from regard.functional.cache import Lengths, last_rows
from regard.functional.rows import recomputed, upto
from regard.models.config import Model
from regard.models.tokens import (
    Hidden,
    Numbers,
    TokenLogits,
    Tokens,
    Valid,
    check_like,
    check_state,
    check_tokens,
    looked_up,
)
from regard.models.two_streams import (
    CONTEXT,
    FactorizationOrder,
    Order,
    TrunkConfig,
    TwoStreamLayer,
)
from regard.nn.starts import NormalRows, normal_rows, unset


class XLNetConfig(TrunkConfig):
    """With num_predict, context has the logits of a query stream that is zero.

    Args:
        mem_len: tokens of earlier calls that each layer keeps
        num_predict: most tokens of a row that are predicted, for which the query stream is made; None: all
    """

    name = "xlnet"
    kinds = ("permutation_language_model",)

    mem_len: Count = 0
    num_predict: int | None = None


@as_state
class State(Streamed):
    memory: tuple[Float[Tensor, "B M D"], ...]  # one for each layer, newest token last
    length: Lengths  # tokens so far; min(length, M) rows of a memory are tokens


class Trunk(nn.Module):
    """Embedding and layers: what is trained first and then fine-tuned."""

    def __init__(self, config: TrunkConfig):
        super().__init__()
        self.checkpoint = config.checkpoint
        self.table = NormalRows(config.vocab_size, config.dim)
        normal_rows(self.table, std=0.02)
        self.layers = nn.ModuleList(TwoStreamLayer(config) for _ in range(config.num_layers))
        self.dropout = nn.Dropout(config.dropout)

    def empty(self, batch_size: int, mem_len: int) -> State:
        weight = self.table.weight
        memory = weight.new_zeros(batch_size, mem_len, weight.shape[1])
        return State((memory,) * len(self.layers), weight.new_zeros(batch_size, dtype=torch.long))

    def forward(
        self,
        h: Hidden,
        g: Hidden | None,
        ranks: FactorizationOrder,
        state: State,
        *,
        num_predict: int | None = None,
    ) -> tuple[Hidden, Hidden | None, State]:
        """Both streams after the last layer, and the memories with these tokens.

        num_predict: g is made for the places of so many highest ranks, and is zero elsewhere.
        """
        M, T = state.memory[0].shape[1], h.shape[1]
        masks = ranks.masks(upto(M, h) >= M - state.length[:, None])
        added = ranks.valid.sum(1)
        predicted = index = None
        if g is not None and num_predict is not None and not is_mapped(ranks.order):
            predicted = ranks.order.topk(min(num_predict, T), 1).indices
            index = predicted[..., None].expand(-1, -1, g.shape[2])
            g = g.gather(1, index)
        h = self.dropout(h)
        g = None if g is None else self.dropout(g)
        memories = []
        for layer, memory in zip(self.layers, state.memory, strict=True):
            memories.append(last_rows(memory, h, added).detach())
            given = h, g, memory, masks, ranks.segments, predicted
            h, g = recomputed(layer, *given, when=self.checkpoint, random=True)
        if g is not None and index is not None:
            g = torch.zeros_like(h).scatter(1, index, g)
        if g is not None and num_predict is not None:
            g = clear(g, ranks.order != CONTEXT)
        after = State(tuple(memories), state.length + added)
        return self.dropout(h), None if g is None else self.dropout(g), after


class XLNet(Model):
    """model(tokens [B T], order=[B T], valid=[B T] | None) -> logits [B T vocab_size] of the token at each place.

    order: the rank of each token, -1 for context. Logits are given what is context or of lower rank, and never the token
    itself, except where it is context. segments [B T]: the part of a pair that a token belongs to.
    """

    name = "xlnet"

    def __init__(self, config: XLNetConfig):
        super().__init__(config)
        self.trunk = Trunk(config)
        self.query = unset(config.dim)
        self.bias = unset(config.vocab_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.query, std=0.02)
        nn.init.zeros_(self.bias)

    def forward(
        self, tokens: Tokens, *, order: Order, valid: Valid = None, segments: Numbers = None
    ) -> TokenLogits:
        self._check(tokens, order, valid, segments)
        return self._read(tokens, self.trunk.empty(tokens.shape[0], 0), order, valid, segments)[0]

    def initial_state(self, batch_size: int) -> State:
        """Empty memories; setting a row's `length` to 0 empties that row's again."""
        check_option("xlnet", "batch_size", batch_size, Count)
        weight = self.trunk.table.weight
        size = batch_size * self.config.mem_len * self.config.dim * weight.itemsize
        require_memory("xlnet", "its state", size, weight.device, "Choose smaller sizes.")
        return self.trunk.empty(batch_size, self.config.mem_len)

    def extend(
        self,
        tokens: Tokens,
        state: State,
        *,
        order: Order,
        valid: Valid = None,
        segments: Numbers = None,
    ) -> tuple[TokenLogits, State]:
        """Logits of the next N tokens, ordered among themselves, and the memories with them.

        Raises ShapeError for a state that is not of this model and batch.
        """
        self._check(tokens, order, valid, segments)
        check_state(self.name, state, State, self.config.num_layers, tokens)
        wanted = (tokens.shape[0], self.config.mem_len, self.config.dim)
        if any(getattr(memory, "shape", None) != wanted for memory in state.memory):
            raise ShapeError(
                f"xlnet: state must come from initial_state of this model, whose memories are {list(wanted)}"
            )
        return self._read(tokens, state, order, valid, segments)

    def _read(
        self, tokens: Tensor, state: State, order: Tensor, valid: Valid, segments: Numbers
    ) -> tuple[TokenLogits, State]:
        source, back, valid = compaction(existing(tokens, valid))
        if segments is not None:
            segments = permute(segments, source)
        ranks = permute(order, source).masked_fill(~valid, CONTEXT)
        h = looked_up(self.trunk.table, permute(tokens, source), valid)
        _, g, state = self.trunk(
            h,
            self.query.expand_as(h),
            FactorizationOrder(ranks, valid, segments),
            state,
            num_predict=self.config.num_predict,
        )
        return F.linear(permute(g, back), self.trunk.table.weight, self.bias), state

    def _check(self, tokens: Tensor, order: Any, valid: Valid, segments: object) -> None:
        check_tokens(self.name, tokens, valid, self.trunk.table.weight)
        check_like(self.name, "order", order, tokens)
        if segments is not None:
            check_like(self.name, "segments", segments, tokens)
        ranks = order if valid is None else order.masked_fill(~valid, CONTEXT)
        said = (
            f"xlnet: order holds a rank below {CONTEXT}: ranks start at 0, and {CONTEXT} is context"
        )
        require_all(ranks >= CONTEXT, said)
        if (most := self.config.num_predict) is not None:
            said = f"xlnet: a row predicts more tokens than num_predict={most}. Raise it, or predict fewer."
            require_all((ranks != CONTEXT).sum(1) <= most, said)


def xlnet_base(vocab_size: int = 32_000) -> XLNetConfig:
    """Returns the base: 117 million parameters, of which the embedding has 25."""
    return XLNetConfig(
        vocab_size=vocab_size,
        dim=768,
        num_heads=12,
        num_layers=12,
        mem_len=384,
        dropout=0.1,
        attention_dropout=0.1,
    )


def xlnet_large(vocab_size: int = 32_000) -> XLNetConfig:
    """Returns the large one: 360 million parameters, of which the embedding has 33; trained on 512 tokens."""
    return replace(xlnet_base(vocab_size), dim=1024, num_heads=16, num_layers=24)


def xlnet_small(vocab_size: int) -> XLNetConfig:
    """Returns a configuration for small machines."""
    return XLNetConfig(vocab_size=vocab_size, num_layers=3, hidden_dim=256, dropout=0.1)
