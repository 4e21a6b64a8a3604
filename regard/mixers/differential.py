"""Differential attention (Ye et al. 2024, arXiv 2410.05258; second version: Microsoft 2026): one map of softmax attention minus another.

    v2   o_h = o_(2h) - sigmoid(W x)_h o_(2h+1),   o = softmax(q k^T / sqrt(K)) v of twice as many heads of queries, pairs of which share k and v
    v1   o_h = (1 - l0) norm((softmax(q1 k1^T / sqrt(K)) - l softmax(q2 k2^T / sqrt(K))) v_h),   l = exp(a . b) - exp(c . d) + l0

In v1 queries and keys have K channels and values 2 K, norm has no weights, and l0 = 0.8 - 0.6 exp(-0.3 layer) grows with the place of the layer,
from 0. y = concat_h(o_h) W_out. Cost: two maps of softmax attention. Weights may be negative; a row sums to 1 - l. Heads of keys and values may
be fewer than heads (`num_kv_heads`, arXiv 2305.13245).

Args:
    form: "v2" or "v1"
    layer: place of the layer in its stack, from 0, of v1
"""

import math
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from regard.core import Count, Mixed, Tokens, check_divisible
from regard.functional.rows import Impl, apart, grouped, side_by_side
from regard.functional.softmax import softmax_attention
from regard.mixers._base import ALL
from regard.mixers._cached import CachedMixer
from regard.nn.norm import rms_norm
from regard.nn.starts import NormalRows, normal_rows, projection


class Differential(CachedMixer):
    __doc__ = __doc__
    name = "differential"
    family = "softmax"
    operations = ("softmax",)
    paper = "Ye et al. 2024, arXiv 2410.05258"
    capabilities = ALL.but(state="T G K", exchange="keys", finite_to=10.0)
    variants = {"v1": {"form": "v1", "layer": 2, "num_kv_heads": 1}, "grouped": {"num_kv_heads": 1}}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        form: Literal["v2", "v1"] = "v2",
        layer: Count = 0,
        impl: Impl = "auto",
    ):
        super().__init__(dim, impl)
        G = num_kv_heads or num_heads
        keys = 2 if form == "v1" else 1  # beside each value
        check_divisible(dim=dim, num_heads=keys * num_heads)
        check_divisible(num_heads=num_heads, num_kv_heads=G)
        self.num_heads = num_heads
        self.value_dim = dim // num_heads
        self.key_dim = self.value_dim // keys
        self.query = projection(dim, 2 * dim // keys)
        self.key, self.value = (projection(dim, G * self.value_dim) for _ in "kv")
        self.out = projection(dim, dim)
        self.least = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.factors: Any = None
        if form == "v1":
            self.factors = NormalRows(4, self.key_dim)
            normal_rows(self.factors, std=0.1)
        else:
            self.share = projection(dim, num_heads)

    def _split(self, x, context, at=None):
        source = x if context is None else context
        q, k = (apart(z, self.key_dim) for z in (self.query(x), self.key(source)))
        return q, k, apart(self.value(source), self.value_dim)

    def _attend(self, q, k, v, mask, query=None, key=None):
        """What the heads 2 h and 2 h + 1 of each difference read; in v1 of two keys, which stay beside each other in each copy."""
        if self.factors is not None:
            k = grouped(k.unflatten(1, (-1, 2)), self.num_heads).flatten(1, 2)
            v = grouped(v, k.shape[1])
        if mask.pairwise is not None and mask.pairwise.shape[1] > 1:
            mask = replace(mask, pairwise=mask.pairwise.repeat_interleave(2, 1))
        return softmax_attention(q, k, v, mask=mask, impl=self.impl)

    def _differences(self, x: Tokens, read: Tensor) -> Mixed:
        one, other = read[:, ::2], read[:, 1::2]
        if self.factors is None:
            return one - self.share(x).sigmoid().mT[..., None] * other
        a, b, c, d = self.factors.weight
        return one - ((a @ b).exp() - (c @ d).exp() + self.least) * other

    def _mixed(self, x, context, mask, of=None):
        return self._differences(x, super()._mixed(x, context, mask, of))

    def _merge(self, x, mixed):
        y = self._differences(x, mixed)
        if self.factors is not None:
            y = (1 - self.least) * rms_norm(y)
        return self.out(side_by_side(y))
