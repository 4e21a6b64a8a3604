"""Models of fields by explicit products: DCN's cross network and xDeepFM's compressed interaction network.

    cross network          x_l+1 = x_0 (w_l . x_l) + b_l + x_l                        x_0 = e_1 .. e_M joined [M D]
                           y = w . x_L + b                                            (Wang et al. 2017, arXiv 1708.05123)
    compressed interaction X^l_h = sum_ij W^l_hij  X^l-1_i * X^0_j,   X^0 = e [M D]   element by element over D
                           y = LR + w . concat_l sum_d X^l                            (Lian et al. 2018, arXiv 1803.05170)

Each layer adds one degree. With `hidden_dims` a network on the joined embeddings stands beside: DCN joins both outputs before
the last linear layer, xDeepFM adds the logits. No activation between the layers of products, the better one in the second
paper, and no half of them is kept back. Missing fields are zero. Cost: L M D, and L H M (H + D) a row.
"""

import torch
from torch import nn

from regard.core import Depth, OptionError
from regard.models.config import FieldsConfig, FieldsModel, Logits
from regard.nn.dnn import DNN, Widths
from regard.nn.fields import FieldBatch, FieldEmbedding
from regard.nn.starts import unset


class CrossNetworkConfig(FieldsConfig):
    """The configuration of a cross network: dim of embeddings; hidden_dims of the network beside (DCN), none for the cross network alone."""

    name = "cross_network"
    dim: int = 16
    num_layers: Depth = 3
    hidden_dims: Widths = ()


class CrossNetwork(FieldsModel):
    """model(batch) -> logits [B num_tasks]"""

    name = "cross_network"

    def __init__(self, config: CrossNetworkConfig):
        super().__init__(config)
        self.embedding = FieldEmbedding(config.fields, config.dim)
        width = len(config.fields) * config.dim
        self.weights = unset(config.num_layers, width)
        self.biases = unset(config.num_layers, width)
        self.reset_parameters()
        self.deep = DNN(width, config.hidden_dims) if config.hidden_dims else None
        self.head = nn.Linear(width + (self.deep.out_dim if self.deep else 0), config.num_tasks)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weights, std=self.weights.shape[1] ** -0.5)
        nn.init.zeros_(self.biases)

    def forward(self, batch: FieldBatch) -> Logits:
        self.check(batch)
        first = x = self.embedding(batch)[0].flatten(1)
        for w, b in zip(self.weights, self.biases, strict=True):
            x = first * (x @ w)[:, None] + b + x
        return self.head(x if self.deep is None else torch.cat([x, self.deep(first)], 1))


class CompressedInteractionConfig(FieldsConfig):
    """The configuration of compressed interactions: dim of embeddings; hidden_dims of the network beside (xDeepFM), none without.

    Args:
        maps: feature maps of each layer
    """

    name = "compressed_interaction"
    dim: int = 16
    maps: Widths = (32, 32)
    hidden_dims: Widths = ()

    def __post_init__(self):
        super().__post_init__()
        if not self.maps:
            raise OptionError("maps must hold the number of feature maps of at least one layer")


class CompressedInteraction(FieldsModel):
    """model(batch) -> logits [B num_tasks]"""

    name = "compressed_interaction"

    def __init__(self, config: CompressedInteractionConfig):
        super().__init__(config)
        M, K = len(config.fields), config.num_tasks
        self.linear = FieldEmbedding(config.fields, K)
        self.embedding = FieldEmbedding(config.fields, config.dim)
        sizes = zip(config.maps, (M, *config.maps), strict=False)
        self.weights = nn.ParameterList(torch.empty(count, before, M) for count, before in sizes)
        self.reset_parameters()
        self.head = nn.Linear(sum(config.maps), K)
        self.deep = self.deep_head = None
        if config.hidden_dims:
            self.deep = DNN(M * config.dim, config.hidden_dims)
            self.deep_head = nn.Linear(self.deep.out_dim, K)

    def reset_parameters(self) -> None:
        for weight in self.weights:
            nn.init.normal_(weight, std=weight[0].numel() ** -0.5)

    def forward(self, batch: FieldBatch) -> Logits:
        self.check(batch)
        first = x = self.embedding(batch)[0]
        sums = []
        for weight in self.weights:
            x = torch.einsum("bid,bjd,hij->bhd", x, first, weight)
            sums.append(x.sum(2))
        logits = self.linear(batch)[0].sum(1) + self.head(torch.cat(sums, 1))
        if self.deep is None or self.deep_head is None:
            return logits
        return logits + self.deep_head(self.deep(first.flatten(1)))
