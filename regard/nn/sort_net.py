"""Sorting networks of Sinkhorn attention: which source block goes to each place (arXiv 2002.11296).

linear     R_g = W s_g                         s_g [D] the summary of block g; one output for each source block
mlp        R_g = W_2 relu(W_1 s_g)
attention  R_gu = q_g k_u / sqrt(K)            q_g, k_u means of the blocks: no parameters, and no bound on the length
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.functional.rows import plain_alone, wide_type
from regard.nn.heads import read

Kind = Literal["linear", "mlp", "attention"]


class SortNet(nn.Module):
    """Scores of `linear` and `mlp`; `attention` needs no module."""

    def __init__(self, dim: int, num_heads: int, max_blocks: int, *, hidden: bool):
        super().__init__()
        self.num_heads = num_heads
        self.max_blocks = max_blocks
        self.hidden = nn.Linear(dim, dim) if hidden else None
        self.out = nn.Linear(dim, num_heads * max_blocks)

    def forward(self, summary: Float[Tensor, "B G D"], blocks: int) -> Float[Tensor, "B H G N"]:
        """Scores of the first `blocks` source blocks; while a program is exported there is an empty one more."""
        if self.hidden is not None:
            summary = self.hidden(summary).relu()
        shape, more = (self.num_heads, self.max_blocks), 2 * plain_alone()  # never sliced whole
        pad = nn.functional.pad
        out = read("sinkhorn", self.out)
        weight = pad(out.weight.unflatten(0, shape), (0, 0, 0, more))[:, :blocks]
        bias = pad(out.bias.unflatten(0, shape), (0, more))[:, :blocks]
        scores = nn.functional.linear(summary, weight.flatten(0, 1), bias.flatten())
        return scores.unflatten(2, (self.num_heads, blocks)).transpose(1, 2)


def block_scores(
    q: Float[Tensor, "B H G K"], k: Float[Tensor, "B H N K"]
) -> Float[Tensor, "B H G N"]:
    """The `attention` kind."""
    return q @ k.mT / q.shape[-1] ** 0.5


def gumbel(like: Tensor) -> Tensor:
    """Gumbel(0, 1) noise, from torch's own generator."""
    uniform = torch.rand_like(like, dtype=wide_type(like))
    return -(-uniform.clamp(min=torch.finfo(uniform.dtype).tiny, max=1 - 1e-7).log()).log()
