"""Synthesized logits with parameters: a row comes from its own token, from its position, or from neither.

Synthesizer (Tay et al. 2020, arXiv 2005.00743). Every class is called with tokens x [B T D] and their positions (by
default 0 .. T - 1), and returns logits for the keys at positions 0 .. S - 1. No scale 1/sqrt(K); b is 1 where nothing depends on the
example.
"""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import OtherTokens, Positions, Tokens
from regard.functional.fixed import CAUSAL_PATTERNS, fixed_weights
from regard.functional.held import as_now
from regard.functional.rows import first_places, longer, upto
from regard.functional.synthesizer import Logits, blended, outer, product, same, table
from regard.nn.heads import split_heads
from regard.nn.scores import build_score
from regard.nn.starts import Glorot, glorot, glorot_matrices, projection, unset

FLOOR = 2.0**-10  # weight of a token outside a fixed pattern, as a logit


class PositionLogits(nn.Module):
    """Base of logits for keys at positions 0 .. S - 1; most are whatever the keys hold."""

    width = 0
    """Channels of what is read of a key."""

    def forward(
        self,
        x: Tokens,
        position: Positions | None = None,
        keys: Float[Tensor, "B H S A"] | None = None,
    ) -> Logits:
        raise NotImplementedError

    def keys(
        self, x: OtherTokens, position: Tensor | None = None
    ) -> Float[Tensor, "B H S A"] | None:
        """What logits read of keys, by default of those of the same tokens; None: nothing."""
        return None


class DenseLogits(PositionLogits):
    """B_i = W_2 relu(W_1 x_i + b_1) + b_2: one number for each of `max_len` positions; without `hidden`, W_2 x_i + b_2."""

    def __init__(
        self, dim: int, num_heads: int, max_len: int, *, hidden: int | None, share_w2: bool = False
    ):
        super().__init__()
        self.num_heads = num_heads
        self.hidden = None if hidden is None else projection(dim, num_heads * hidden, bias=0.0)
        heads = 1 if share_w2 else num_heads
        self.weight = unset(heads, max_len, hidden or dim)
        self.bias = unset(heads, max_len)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_matrices(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x, position=None, keys=None):
        others = (longer(z, x.shape[1], 1)[None] for z in (self.weight, self.bias))
        return Logits(product, (self._hidden(x),), tuple(others))

    def _hidden(self, x: Tokens) -> Float[Tensor, "B h T F"]:
        if self.hidden is None:
            return x[:, None]
        return rearrange(F.relu(self.hidden(x)), "b t (h f) -> b h t f", h=self.num_heads)


class RandomLogits(PositionLogits):
    """B = R: the same for every example; fixed at its random start unless `trainable`."""

    def __init__(self, num_heads: int, max_len: int, *, trainable: bool):
        super().__init__()
        table = torch.empty(num_heads, max_len, max_len)
        if trainable:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_matrices(self.table)

    def forward(self, x, position=None, keys=None):
        return Logits(table, (by_position(longer(self.table, x.shape[1], 2), x, position),))


class FactorizedRandomLogits(PositionLogits):
    """B = R_1 R_2^T with `rank` columns in each factor."""

    def __init__(self, num_heads: int, max_len: int, *, rank: int):
        super().__init__()
        self.left = unset(num_heads, max_len, rank)
        self.right = unset(num_heads, max_len, rank)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_matrices(self.left, self.right)

    def forward(self, x, position=None, keys=None):
        right = longer(self.right, x.shape[1], 1)[None]
        return Logits(product, (by_position(self.left, x, position),), (right,))


class FactorizedDenseLogits(DenseLogits):
    """B_ij = A_ip C_iq of two short vectors A_i (a entries), C_i (b entries) made by token i, a b >= max_len.

    tiling "outer": j = p b + q, so that every pair (p, q) occurs; "same": p = j mod a, q = j mod b, both tiled.
    """

    def __init__(
        self, dim: int, num_heads: int, *, hidden: int, factors: tuple[int, int], tiling: str
    ):
        super().__init__(dim, num_heads, sum(factors), hidden=hidden)
        self.factors = factors
        self.tiling = tiling

    def forward(self, x, position=None, keys=None):
        both = self._hidden(x) @ self.weight.mT + self.bias[:, None]
        return Logits(outer if self.tiling == "outer" else same, both.split(self.factors, -1))


class FixedPatternLogits(PositionLogits):
    """log(P + 2^-10) of fixed patterns that look back (arXiv 2002.10260): current, previous, left, one head after another."""

    def __init__(self, num_heads: int):
        super().__init__()
        self.patterns = [CAUSAL_PATTERNS[h % len(CAUSAL_PATTERNS)] for h in range(num_heads)]
        self.register_buffer("floor", torch.tensor(FLOOR))
        self.floor: Tensor

    def reset_parameters(self) -> None:
        nn.init.constant_(self.floor, FLOOR)

    def forward(self, x, position=None, keys=None):
        position = first_places(x) if position is None else position
        return Logits(self._logits, (position[:, None, :, None],))

    def _logits(
        self, rows: slice, S: int, position: Int[Tensor, "b 1 t 1"]
    ) -> Float[Tensor, "b H t S"]:
        i = position[:, 0, :, 0]
        weights = fixed_weights(self.patterns, i, upto(S, i)[None], i[:, 0], dtype=self.floor.dtype)
        return (weights + self.floor).log()


class PairLogits(PositionLogits):
    """A score of SCORES with projections of its own."""

    def __init__(self, score: str, dim: int, num_heads: int, max_len: int | None):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.query = Glorot(dim, dim)
        self.key = Glorot(dim, dim)
        glorot(self)
        self.score = build_score(score, dim // num_heads, num_heads=num_heads, max_len=max_len)
        with torch.no_grad():
            self.width = self.keys(torch.zeros(1, 1, dim)).shape[3]

    def forward(self, x, position=None, keys=None):
        q = self.score.queries(split_heads(self.query(x), self.num_heads, self.head_dim))
        if self.score.product:
            return Logits(product, (q,), (keys,))
        pairs = as_now(self.score).pairs
        return Logits(lambda rows, S, q, k: pairs(q, k[:, :, :S]), (q,), (keys,))

    def keys(self, x, position=None):
        k = split_heads(self.key(x), self.num_heads, self.head_dim)
        return self.score.keys(k, position).expand(*k.shape[:3], -1)


class BlendedLogits(PositionLogits):
    """sum_m a_m B_m, a = softmax(learned numbers, one per member and head); uniform at the start."""

    def __init__(self, members: dict[str, PositionLogits], num_heads: int):
        super().__init__()
        self.members: Any = nn.ModuleDict(members)
        self.blend = unset(len(members), num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.blend)

    def forward(self, x, position=None, keys=None):
        members = self.members.values()
        widths = [member.width for member in members]
        own = [None] * len(widths) if keys is None else keys.split(widths, -1)
        parts = [member(x, position, k) for member, k in zip(members, own, strict=True)]
        return blended(self.blend.softmax(0), parts)

    def keys(self, x, position=None):
        """Keys of all scores, side by side."""
        found = [member.keys(x, position) for member in self.members.values()]
        found = [keys for keys in found if keys is not None]
        return torch.cat(found, -1) if found else None


def by_position(
    table: Float[Tensor, "H N F"], x: Tokens, position: Positions | None
) -> Float[Tensor, "b H T F"]:
    """Rows of a table for the tokens x: from the first on, or of the given positions."""
    if position is None:
        # Cut before the batch axis is added, so that gradients of several cuts are summed in place.
        T = x.shape[1]
        return longer(table, T, 1)[:, :T][None]
    return rearrange(table[:, position], "h b t f -> b h t f")
