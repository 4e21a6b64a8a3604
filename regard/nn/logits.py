"""Logits that no pair of tokens makes: a row from its own token, from its position, or from neither.

Synthesizer (Tay et al. 2020, arXiv 2005.00743). Every class has two methods, so that the logits of a long sequence
can be made for some queries at a time:
    rows(x, position) -> [b H T F]      what the queries at these positions need
    score(rows, S)    -> [b H T S]      their logits for the keys at positions 0 .. S - 1
No scale 1/sqrt(K); b is 1 where nothing depends on the example.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.shapes import check_positive


class DenseLogits(nn.Module):
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
