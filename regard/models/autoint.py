"""AutoInt: attention over feature fields (Song et al. 2019, CIKM, arXiv 1810.11921).

    a^h_mk = softmax_k <W_Q^h e_m, W_K^h e_k>,   z_m = concat_h sum_k a^h_mk W_V^h e_k
    e_m <- relu(z_m + W_res e_m)                 L times;   y = w . concat_m e_m + b

No scale, no biases, no norm, as in the paper. `official=True` is the authors' code: relu after each projection, which
have biases, scores over sqrt(K), and layer norm after the last relu (their dropout is ours too). `hidden_dims` makes it AutoInt+:
a network on the concatenated embeddings, whose logits are added. Missing fields are as if absent, and zero in the
concatenation. There is no `mixer`: a layer widens D to H K around its own residual, which no mixer does, and fields
are few, so that a cheaper attention would gain nothing. Cost: L M^2 K H.
"""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Depth, Mask, Rate, clear
from regard.functional.softmax import softmax_attention, softmax_weights
from regard.models.config import FieldsConfig, FieldsModel, Logits
from regard.nn.dnn import DNN, Widths
from regard.nn.fields import Embedded, FieldBatch, FieldEmbedding, Present
from regard.nn.starts import Glorot, glorot


class AutoIntConfig(FieldsConfig):
    """The configuration of AutoInt: dim of embeddings; hidden_dims of the network of AutoInt+, none for AutoInt.

    Args:
        head_dim: channels of a head
        official: True: as in the authors' code
    """

    name = "autoint"
    dim: int = 16
    num_heads: int = 2
    head_dim: int = 32
    num_layers: Depth = 3
    official: bool = False
    hidden_dims: Widths = ()
    dropout: Rate = 0.0


class Interacting(nn.Module):
    """e [B M D] -> [B M H K], one layer."""

    def __init__(self, config: AutoIntConfig, dim: int):
        super().__init__()
        width = config.num_heads * config.head_dim
        official = config.official
        self.num_heads = config.num_heads
        self.dropout = config.dropout
        self.query, self.key, self.value, self.residual = (
            Glorot(dim, width, bias=official) for _ in range(4)
        )
        glorot(self)
        self.scale = config.head_dim**-0.5 if official else 1.0
        self.activation = nn.ReLU() if official else nn.Identity()
        self.norm = nn.LayerNorm(width, eps=1e-8) if official else nn.Identity()

    def forward(self, e: Embedded, present: Present) -> Float[Tensor, "B M F"]:
        q, k, v = (self._heads(f, e) for f in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        z = softmax_attention(q, k, v, mask=Mask(valid=present), scale=self.scale, dropout=dropout)
        mixed = rearrange(z, "b h m k -> b m (h k)") + self.activation(self.residual(e))
        return clear(self.norm(mixed.relu()), present)

    def weights(self, e: Embedded, present: Present) -> Float[Tensor, "B H M M"]:
        q = self._heads(self.query, e)
        k = self._heads(self.key, e)
        weights = softmax_weights(q, k, mask=Mask(valid=present), scale=self.scale)
        return torch.where(present[:, None, :, None], weights, 0.0)

    def _heads(self, projection: nn.Linear, e: Tensor) -> Tensor:
        return rearrange(self.activation(projection(e)), "b m (h k) -> b h m k", h=self.num_heads)


class AutoInt(FieldsModel):
    """model(batch) -> logits [B num_tasks]"""

    name = "autoint"

    def __init__(self, config: AutoIntConfig):
        super().__init__(config)
        self.embedding = FieldEmbedding(config.fields, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        width = config.num_heads * config.head_dim
        self.layers: Any = nn.ModuleList(
            Interacting(config, width if i else config.dim) for i in range(config.num_layers)
        )
        M = len(config.fields)
        self.head = nn.Linear(M * width, config.num_tasks)
        self.deep = self.deep_head = None
        if config.hidden_dims:
            self.deep = DNN(
                M * config.dim,
                config.hidden_dims,
                activation=lambda _: nn.Sequential(nn.ReLU(), nn.Dropout(config.dropout)),
            )
            self.deep_head = nn.Linear(self.deep.out_dim, config.num_tasks)

    def forward(self, batch: FieldBatch) -> Logits:
        fields, present = self._embedded(batch)
        e = fields
        for layer in self.layers:
            e = layer(e, present)
        logits = self.head(e.flatten(1))
        if self.deep is None or self.deep_head is None:
            return logits
        return logits + self.deep_head(self.deep(fields.flatten(1)))

    def attention_maps(self, batch: FieldBatch) -> list[Float[Tensor, "B H M M"]]:
        """The weights of each layer; zero where a field is missing."""
        e, present = self._embedded(batch)
        maps = []
        for layer in self.layers:
            maps.append(layer.weights(e, present))
            e = layer(e, present)
        return maps

    def _embedded(self, batch: FieldBatch) -> tuple[Tensor, Tensor]:
        self.check(batch)
        e, present = self.embedding(batch)
        return self.dropout(e), present
