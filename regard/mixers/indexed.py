"""Attention to the keys that a small index scores highest (DeepSeek sparse attention, arXiv 2512.02556; MSA, arXiv 2606.13392, by blocks).

    I_ij = sum_h w_ih relu(q^I_ih . k^I_j) / sqrt(d_I),   k^I = norm(W_k^I x),   w = W_w x / sqrt(index_heads)
    y_i = concat_h( softmax over the `top_k` allowed j of largest I_ij of q_i k_j / sqrt(K)  v_j ) W_out

One choice serves all heads. With `block_size` it is MSA: the index has one head for each head of keys, normed queries, no relu and no w; the score of a block is its largest, a
query's own block comes first, and `top_k` counts blocks. A choice has no gradient: the index learns by `auxiliary_loss`, the divergence of softmax(I) from the attention weights
summed over heads, over the chosen keys; it moves nothing else. DeepSeek trains it with `top_k` of at least T first (dense attention), then sparse. Cost: T^2 d_I index_heads for the
choice, T top_k (K + V) a head. A stream keeps keys, values and k^I. Unlike DeepSeek's, index queries are of the token itself, and rotary positions turn all index channels.

Args:
    top_k: keys, or blocks of keys, that a query reads
    block_size: tokens of a block of keys; None: single keys are chosen
    index_heads: heads of the index; None: 4, or with blocks as many as keys have
    index_dim: channels of an index head, d_I; None: dim / num_heads
"""

import torch
from torch import nn

from regard.core import OPEN, No, OptionError, check_even
from regard.core.documents import mean_of_queries
from regard.functional.rows import Impl, apart, first_places, side_by_side, unrounded
from regard.functional.selected import index_of_keys
from regard.mixers._base import Options
from regard.mixers._selected import SelectedMixer
from regard.nn.norm import RMSNorm
from regard.nn.starts import projection


class Indexed(SelectedMixer):
    __doc__ = __doc__
    name = "indexed"
    paper = "DeepSeek-AI 2025, arXiv 2512.02556"
    variants = {
        "few": {"top_k": 3, "index_dim": 5},
        "grouped": {"top_k": 4, "index_heads": 2, "num_kv_heads": 1, "position": "rotary"},
        "blocks": {"top_k": 2, "block_size": 3},
    }
    limits = {"softmax": ({"top_k": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        top_k: int = 64,
        block_size: int | None = None,
        index_heads: int | None = None,
        index_dim: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        single = block_size is None
        of_heads = dim, num_heads, num_kv_heads, impl, position, position_options
        super().__init__(top_k, block_size, *of_heads, alike=single)
        self.index_dim = d = index_dim or self.heads.head_dim
        G = self.heads.num_kv_heads
        heads = index_heads or (4 if single else G)
        if not single:
            if heads != G:
                raise OptionError(
                    f"indexed: index_heads ({heads}) must be {G}: one for each head of keys"
                )
            self.declare(
                cross=No("a query begins with its own block, and has none in a context"),
                pairwise=No("a block is chosen for its best key, and read whole"),
            )
        check_even(index_dim=0 if position is None else d)
        self.index_query, self.index_key = (projection(dim, n * d) for n in (heads, 1))
        self.index_norm = nn.LayerNorm(d, eps=1e-6) if single else RMSNorm(d)
        self.query_norm = nn.Identity() if single else RMSNorm(d)
        self.index_weight = projection(dim, heads) if single else None
        self.beside_heads = "its index"

    def _split(self, x, context, at=None):
        """q, index queries and their weights; keys of all heads and of the index side by side."""
        q, k, v = super()._split(x, context, at)
        x, source = (z.type_as(self._like) for z in (x, x if context is None else context))
        with unrounded(x):
            qi = self.query_norm(apart(self.index_query(x), self.index_dim))
            ki = self.index_norm(self.index_key(source))[:, None]
            if self.position is not None:
                at = first_places(x) if at is None else at
                qi, ki = (self.position.rotate(z, at) for z in (qi, ki))
            w = None if self.index_weight is None else self.index_weight(x) * qi.shape[1] ** -0.5
        return (q, qi, w), torch.cat([side_by_side(k)[:, None], ki], -1), v

    def _index(self, q, k, mask):
        return index_of_keys(q[1], q[2], k[..., -self.index_dim :], mask, self.block_size)

    def _pair(self, q, k):
        return q[0], apart(k[:, 0, :, : -self.index_dim], self.heads.key_dim)

    def auxiliary_loss(self, x, *, context=None, mask=OPEN):
        """KL of softmax(I) from the attention weights, a mean over queries; see above."""
        return mean_of_queries(self, self._divergence, x, context, mask)
