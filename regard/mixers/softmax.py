"""Scaled dot-product attention with several heads (Vaswani et al. 2017, arXiv 1706.03762).

    y = concat_h( softmax(q_h k_h^T / sqrt(K)) v_h ) W_out

Cost: T S (K + V) per head; the fused kernel stores no weights. Options beyond the paper: fewer key/value heads
(`num_kv_heads`, arXiv 2305.13245); keys made from the queries (`shared_qk`, arXiv 2001.04451), where keys have unit
norm, the scale is 1 and a token sees itself only if it sees nothing else; positions inside attention (`position`):
"rotary" turns queries and keys (arXiv 2104.09864), "alibi" (arXiv 2108.12409) and "t5" (arXiv 1910.10683) add a number
to each scaled score, T H S more, computed for one tile of queries at a time. `position_options` are the kind's own; layers share a
table of "t5" when one module is given to all: `layer.position = first.position`. T5 itself has `scale=1.0`.

Args:
    shared_qk: True: keys are made from the queries
    scale: factor of q . k before the normaliser, or the name of its rule; None: 1 / sqrt(K)
    bias: True: linear maps have a bias
    dropout: share of values that is set to zero in training
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core import OPEN, Mask, No, Observation
from regard.core.options import Rate
from regard.functional.rows import Impl, check_impl
from regard.functional.softmax import softmax_attention, softmax_weights
from regard.mixers._cached import CachedMixer
from regard.mixers._capabilities import ALL
from regard.nn.heads import Heads, HeadsMixer
from regard.positions.inside import inside
from regard.positions.relative import T5, Alibi


class Softmax(CachedMixer, HeadsMixer):
    __doc__ = __doc__
    name = "softmax"
    family = "softmax"
    paper = "Vaswani et al. 2017, arXiv 1706.03762"
    capabilities = replace(
        ALL,
        positions=frozenset({"absolute", "rotary", "alibi", "t5"}),
        state="T G K",
    )
    variants = {
        "grouped_query": {"num_kv_heads": 1},
        "shared_qk": {"shared_qk": True},
        "bias": {"bias": True},
        "rotary": {"position": "rotary"},
        "alibi": {"position": "alibi"},
        "t5": {"position": "t5", "position_options": {"num_buckets": 8, "max_distance": 6}},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        shared_qk: bool = False,
        scale: float | None = None,
        bias: bool = False,
        position: str | None = None,
        position_options: Mapping[str, Any] | None = None,
        dropout: Rate = 0.0,
        impl: Impl = "auto",
    ):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, "softmax")
        self.num_heads = num_heads
        self.position = inside(self, num_heads, position, position_options)
        self.heads = Heads(
            dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            bias=bias,
            shared_qk=shared_qk,
            position=self.position,
            alike=not isinstance(self.position, Alibi | T5),
        )
        self.scale = 1.0 if shared_qk and scale is None else scale
        self.shared_qk = shared_qk
        self.dropout = dropout
        if self.position is not None:
            self.declare(cross=No("relative positions need queries and keys on one axis"))
        if shared_qk:
            self.declare(cross=No("its keys are the queries of the same tokens"))

    def _mixed(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        at = torch.arange(x.shape[1], device=x.device)[None]
        how = self._how(at, at, q.dtype)
        return softmax_attention(q, k, v, mask=mask, **how, **self._computed)

    def _how(
        self, query: Int[Tensor, "#b T"], key: Int[Tensor, "#b S"], dtype: torch.dtype
    ) -> dict[str, Any]:
        """What weighs queries and keys at these positions."""
        how: dict[str, Any] = {"scale": self.scale, "exclude_self": self.shared_qk}
        of = self.position
        if isinstance(of, Alibi | T5):
            how["bias"] = lambda rows, cols: of.bias(query[:, rows], key[:, cols], dtype)
        return how

    @property
    def _computed(self) -> dict[str, Any]:
        return {"dropout": self.dropout if self.training else 0.0, "impl": self.impl}

    def _split(self, x, context, at):
        return self.heads.split(x, context, None if at is None else at[:, 0])

    def _attend(self, q, k, v, mask, query, key):
        how = self._how(query, key, q.dtype)
        if self.shared_qk and mask is OPEN:  # one token after all others
            before = slice(max(k.shape[2] - 1, 1))
            k, v, how["exclude_self"] = k[:, :, before], v[:, :, before], False
        elif self.shared_qk and mask.pairwise is not None:  # all but the first see an earlier one
            first_or_other = (query[:, :, None] == 0) | (key[:, None] != query[:, :, None])
            how["exclude_self"] = False
            mask = Mask(pairwise=mask.pairwise & first_or_other[:, None])
        return softmax_attention(q, k, v, mask=mask, **how, **self._computed)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        at = torch.arange(x.shape[1], device=x.device)[None]
        return Observation(q, k, v, softmax_weights(q, k, mask=mask, **self._how(at, at, q.dtype)))
