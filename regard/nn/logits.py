"""Logits that no pair of tokens makes: a row from its own token, from its position, or from neither.

Synthesizer (Tay et al. 2020, arXiv 2005.00743). Every class has two methods, so that the logits of a long sequence
can be made for some queries at a time:
    rows(x, position) -> [b H T F]      what the queries at these positions need
    score(rows, S)    -> [b H T S]      their logits for the keys at positions 0 .. S - 1
No scale 1/sqrt(K); b is 1 where nothing depends on the example.
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.mask import Mask
from regard.core.shapes import check_positive
from regard.functional.fixed import CAUSAL_PATTERNS, fixed_weights

FLOOR = 2.0**-10  # weight of a token outside a fixed pattern, as a logit


class SyntheticLogits(nn.Module):
    """Base of these: what the queries need, and the logits that they make."""

    def rows(self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"] | None = None) -> Tensor:
        raise NotImplementedError

    def score(self, rows: Tensor, S: int) -> Tensor:
        raise NotImplementedError


class DenseLogits(SyntheticLogits):
    """B_i = W_2 relu(W_1 x_i + b_1) + b_2: one number for each of `max_len` positions."""

    def __init__(
        self, dim: int, num_heads: int, max_len: int, *, hidden: int, share_w2: bool = False
    ):
        super().__init__()
        check_positive(head_hidden_dim=hidden)
        self.num_heads = num_heads
        self.hidden = nn.Linear(dim, num_heads * hidden)
        heads = 1 if share_w2 else num_heads
        self.weight = nn.Parameter(torch.empty(heads, max_len, hidden))
        self.bias = nn.Parameter(torch.zeros(heads, max_len))
        nn.init.xavier_uniform_(self.hidden.weight)
        nn.init.zeros_(self.hidden.bias)
        for matrix in self.weight:
            nn.init.xavier_uniform_(matrix)

    def rows(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"] | None = None
    ) -> Float[Tensor, "B H T F"]:
        return rearrange(F.relu(self.hidden(x)), "b t (h f) -> b h t f", h=self.num_heads)

    def score(self, rows: Float[Tensor, "B H T F"], S: int) -> Float[Tensor, "B H T S"]:
        return rows @ self.weight[:, :S].transpose(-1, -2) + self.bias[:, None, :S]


class RandomLogits(SyntheticLogits):
    """B = R: the same for every example; fixed at its random start unless `trainable`."""

    def __init__(self, num_heads: int, max_len: int, *, trainable: bool = True):
        super().__init__()
        table = torch.empty(num_heads, max_len, max_len)
        for matrix in table:
            nn.init.xavier_uniform_(matrix)
        if trainable:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table)

    def rows(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"] | None = None
    ) -> Float[Tensor, "b H T F"]:
        return by_position(self.table, x.shape[1], position)

    def score(self, rows: Float[Tensor, "b H T F"], S: int) -> Float[Tensor, "b H T S"]:
        return rows[..., :S]


class FactorizedRandomLogits(SyntheticLogits):
    """B = R_1 R_2^T with `rank` columns in each factor."""

    def __init__(self, num_heads: int, max_len: int, *, rank: int):
        super().__init__()
        check_positive(rank=rank)
        self.left = nn.Parameter(torch.empty(num_heads, max_len, rank))
        self.right = nn.Parameter(torch.empty(num_heads, max_len, rank))
        for matrix in (*self.left, *self.right):
            nn.init.xavier_uniform_(matrix)

    def rows(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"] | None = None
    ) -> Float[Tensor, "b H T F"]:
        return by_position(self.left, x.shape[1], position)

    def score(self, rows: Float[Tensor, "b H T F"], S: int) -> Float[Tensor, "b H T S"]:
        return rows @ self.right[:, :S].transpose(-1, -2)


class FactorizedDenseLogits(SyntheticLogits):
    """B_ij = A_ip C_iq of two short vectors A_i (a entries), C_i (b entries) made by token i, a b >= max_len.

    tiling "outer": j = p b + q, so that every pair (p, q) occurs; "same": p = j mod a, q = j mod b, both tiled.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        hidden: int,
        factors: tuple[int, int],
        tiling: str = "outer",
    ):
        super().__init__()
        check_positive(head_hidden_dim=hidden)
        self.num_heads, self.factors, self.tiling = num_heads, factors, tiling
        self.hidden = nn.Linear(dim, num_heads * hidden)
        nn.init.xavier_uniform_(self.hidden.weight)
        nn.init.zeros_(self.hidden.bias)
        self.weight = nn.Parameter(torch.empty(num_heads, sum(factors), hidden))
        self.bias = nn.Parameter(torch.zeros(num_heads, sum(factors)))
        for matrix in self.weight:
            nn.init.xavier_uniform_(matrix)

    def rows(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"] | None = None
    ) -> Float[Tensor, "B H T F"]:
        hidden = rearrange(F.relu(self.hidden(x)), "b t (h f) -> b h t f", h=self.num_heads)
        return hidden @ self.weight.transpose(-1, -2) + self.bias[:, None]

    def score(self, rows: Float[Tensor, "B H T F"], S: int) -> Float[Tensor, "B H T S"]:
        a, b = self.factors
        left, right = rows.split(self.factors, dim=-1)
        if self.tiling == "outer":
            return (left[..., : -(-S // b), None] * right[..., None, :]).flatten(-2)[..., :S]
        j = torch.arange(S, device=rows.device)
        return left[..., j % a] * right[..., j % b]


class FixedPatternLogits(SyntheticLogits):
    """log(P + 2^-10) of fixed patterns that look back (arXiv 2002.10260): current, previous, left, one head after another."""

    def __init__(self, num_heads: int):
        super().__init__()
        self.patterns = [CAUSAL_PATTERNS[h % len(CAUSAL_PATTERNS)] for h in range(num_heads)]
        self.register_buffer("floor", torch.tensor(FLOOR))
        self.floor: Tensor

    def rows(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"] | None = None
    ) -> Int[Tensor, "b 1 T 1"]:
        if position is None:
            position = torch.arange(x.shape[1], device=x.device)[None]
        return position[:, None, :, None]

    def score(self, rows: Int[Tensor, "b 1 T 1"], S: int) -> Float[Tensor, "b H T S"]:
        i = rows[:, 0, :, 0]
        j = torch.arange(S, device=rows.device)[None]
        causal = (j[:, None, :] <= i[:, :, None])[:, None]
        weights = fixed_weights(
            self.patterns, i, j, i[:, 0], dtype=self.floor.dtype, mask=Mask(pairwise=causal)
        )
        return (weights + self.floor).log()


def near_square(n: int) -> tuple[int, int]:
    """Two factors of about equal size whose product is at least n."""
    a = math.isqrt(n)
    return a, -(-n // a)


def by_position(
    table: Float[Tensor, "H N F"], T: int, position: Int[Tensor, "b T"] | None
) -> Float[Tensor, "b H T F"]:
    """Rows of a table: the first T, or those of the given positions."""
    if position is None:
        return table[None, :, :T]
    return rearrange(table[:, position], "h b t f -> b h t f")
