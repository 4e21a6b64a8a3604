"""Feed-forward layers: plain (Vaswani et al. 2017, arXiv 1706.03762) and gated (Shazeer 2020, arXiv 2002.05202).

    plain:  s(x W) W_out          gated:  (s(x W_gate) * (x W_value)) W_out

`hidden_dim` F always means the width of the plain form: a gated form has three matrices, and takes 2F/3 rounded, so
that the parameters match. No biases unless asked for, as in the GLU paper; the Transformer paper has them.
"""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Catalog, CheckedModule, Rate, TensorMap, Tokens, Vectors
from regard.functional.rows import recomputed


class FeedForward(CheckedModule):
    """x [.. D] -> [.. D], token by token; `gate` is None in the plain forms."""

    def __init__(
        self,
        dim: int,
        hidden_dim: int | None = None,
        *,
        activation: TensorMap,
        gated: bool,
        bias: bool = False,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        hidden_dim = hidden_dim or 4 * dim
        width = max(1, round(2 * hidden_dim / 3)) if gated else hidden_dim
        self.activation = activation
        self.gate = nn.Linear(dim, width, bias=bias) if gated else None
        self.value = nn.Linear(dim, width, bias=bias)
        self.out = nn.Linear(width, dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Vectors) -> Vectors:
        value = self.value(x)
        hidden = (
            self.activation(value) if self.gate is None else self.activation(self.gate(x)) * value
        )
        return self.out(self.dropout(hidden))


@dataclass(frozen=True)
class FeedForwardKind:
    """An entry of FEED_FORWARDS: `FEED_FORWARDS["swiglu"](dim, hidden_dim)` makes the layer."""

    name: str
    activation: TensorMap
    gated: bool

    def __call__(
        self, dim: int, hidden_dim: int | None = None, *, bias: bool = False, dropout: float = 0.0
    ) -> FeedForward:
        return FeedForward(
            dim,
            hidden_dim,
            activation=self.activation,
            gated=self.gated,
            bias=bias,
            dropout=dropout,
        )


FEED_FORWARDS: Catalog[FeedForwardKind] = Catalog(
    "feed-forward",
    (
        FeedForwardKind("relu", F.relu, gated=False),
        FeedForwardKind("gelu", F.gelu, gated=False),
        FeedForwardKind("swish", F.silu, gated=False),
        FeedForwardKind("glu", F.sigmoid, gated=True),
        FeedForwardKind("bilinear", torch.positive, gated=True),
        FeedForwardKind("reglu", F.relu, gated=True),
        FeedForwardKind("geglu", F.gelu, gated=True),
        FeedForwardKind("geglu_tanh", partial(F.gelu, approximate="tanh"), gated=True),
        FeedForwardKind("swiglu", F.silu, gated=True),
    ),
)


class Chunked(CheckedModule):
    """`layer` applied to `chunk_size` tokens at a time, since tokens are independent (Kitaev et al. 2020, arXiv 2001.04451).

    The same function for any chunk; the widest activations held at once are those of `chunk_size` tokens and not of T.
    In training each chunk is computed again for its backward, as autograd would store every one.
    With dropout the masks are drawn chunk by chunk.
    """

    def __init__(self, layer: nn.Module, chunk_size: int):
        super().__init__()
        self.layer = layer
        self.chunk_size = chunk_size

    def forward(self, x: Tokens) -> Float[Tensor, "B T E"]:
        parts = x.split(self.chunk_size, 1)
        return torch.cat([recomputed(self.layer, part, random=True) for part in parts], 1)
