"""Forgetting attention, FoX (Lin et al. 2025, arXiv 2503.02130): softmax attention whose older keys fade by learned gates.

    y = concat_h( softmax(q_i . k_j / sqrt(K) + c_i - c_j) v_j ) W_out,   c_t = sum over s <= t of log sigmoid(w_f x_s + b_f),   j <= i

A gate of one is softmax attention without positions, a constant gate is ALiBi. Cost: softmax attention's, T^2 (K + V) a head; the bias is made
for one tile of queries at a time. A stream keeps keys, values and c of each key. b_f starts at `gate_bias`: with zero, half is forgotten at
each token; 4 keeps 0.98. The paper's "Pro" block (output gate, norms and shifts of keys) is not part of it. `num_kv_heads`: arXiv 2305.13245.

Args:
    gate_bias: b_f at the start
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core import No
from regard.functional.rows import Impl, wide_type
from regard.functional.softmax import softmax_attention
from regard.mixers._base import ALL, HeadsMixer
from regard.mixers._cached import CachedMixer
from regard.nn.starts import projection


class Forgetting(CachedMixer, HeadsMixer):
    __doc__ = __doc__
    name = "forgetting"
    family = "softmax"
    paper = "Lin et al. 2025, arXiv 2503.02130"
    operations = ("softmax",)
    capabilities = ALL.but(
        bidirectional=No("what a key has lost depends on the tokens after it, up to the query"),
        pairwise=No(
            "the gates between a key and a query count, of tokens that the query may not see, too"
        ),
        cross=No("a query forgets what came before it in its own sequence"),
        state="T G K",
    )
    variants = {"grouped": {"num_kv_heads": 1, "gate_bias": 0.0}}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        gate_bias: float = 4.0,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, repeat=False)
        self.forget = projection(dim, num_heads, bias=gate_bias)
        self.beside_heads = "its gates"

    def _split(self, x, context, at=None):
        """Keys carry the log of their gates, for each head of queries that reads them."""
        q, k, v = super()._split(x, context, at)
        f = F.logsigmoid(self.forget(x).mT).unflatten(1, (k.shape[1], -1)).mT
        return q, torch.cat([k, f], -1), v

    def _shown(self, x, context):
        return self.heads.split(x)

    def _attend(self, q, k, v, mask, query=None, key=None):
        k, f = k.split([q.shape[3], k.shape[3] - q.shape[3]], -1)
        c = f.to(wide_type(f)).cumsum(2).mT.flatten(1, 2)  # B H S
        at = c if query is None else c.take_along_dim(query[:, None], 2)

        def bias(rows: slice, cols: slice) -> Float[Tensor, "B H t s"]:
            return (at[:, :, rows, None] - c[:, :, None, cols]).type_as(q)

        return softmax_attention(q, k, v, mask=mask, bias=bias, impl=self.impl)
