"""Efficient attention (Shen et al. 2018, arXiv 1812.01243).

    y = rho_q(Q) (rho_k(K)^T V),   rho_q: softmax over a query's features,   rho_k: softmax over positions, in every channel

Cost: T K V per head; the weights are never formed, and their rows sum to one. No scale on q or k.
Causal order is not in the paper: rho_k then runs over the positions so far, so that the last row is that of the
bidirectional form and each channel has its own denominator. State: K (V + 2) per head. No rotary positions: a rotation mixes channels, and each has its own denominator. `num_kv_heads`: arXiv 2305.13245.
`normaliser="scaling"` is the paper's other form, Q K^T V / (number of keys), which divides by all keys at once.
"""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Mask, No, Observation
from regard.core.states import Streamed, as_state
from regard.functional.cache import advance
from regard.functional.efficient import (
    causal_means,
    efficient_attention,
    no_keys,
    present_keys,
    summed,
    weights,
)
from regard.functional.features import present
from regard.functional.rows import Impl, check_impl
from regard.mixers._recurrent import RecurrentMixer
from regard.nn.heads import Heads, HeadsMixer


@as_state
class State(Streamed):
    S: Float[Tensor, "B H K V"]  # sum of exp(k - m) v in every channel
    z: Float[Tensor, "B H K"]  # sum of exp(k - m)
    m: Float[Tensor, "B H K"]
    length: Int[Tensor, "B"]


@as_state
class ContextState(Streamed):
    S: Float[Tensor, "B H K V"]
    length: Int[Tensor, "B"]


class Efficient(HeadsMixer):
    __doc__ = __doc__
    name = "efficient"
    family = "linear"
    paper = "Shen et al. 2018, arXiv 1812.01243"
    capabilities = replace(RecurrentMixer.capabilities, time="T H K V", state="H K V")
    variants = {"scaling": {"normaliser": "scaling"}, "grouped": {"num_kv_heads": 1}}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        normaliser: Literal["softmax", "scaling"] = "softmax",
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim)
        if normaliser == "scaling":
            at_once = No("normaliser='scaling' divides by the number of all keys")
            self.declare(causal=at_once, streaming=at_once)
        self.impl = check_impl(self.name, impl, "efficient")
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads, num_kv_heads=num_kv_heads, repeat=True, alike=True)
        self.normaliser = normaliser

    def _mixed(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        if self.normaliser == "softmax":
            return efficient_attention(q, k, v, mask=mask, impl=self.impl)
        return q @ (scaled(k, mask).mT @ v)

    def _initial_state(self, batch_size, max_len, context, valid):
        like = self.heads.zeros(batch_size, 0)
        length = like.new_zeros(batch_size, dtype=torch.long)
        if context is not None:
            mask = Mask(valid=valid)
            k = present_keys(self.heads.keys(context), mask)
            return ContextState(summed(k, self.heads.values(context), mask), length)
        return State(*no_keys(like, like.shape[3]), length)

    def _extend(self, x, state, valid, donate):
        length = advance(state.length, valid, x.shape[1])
        rho = self.heads.queries(x).softmax(-1)
        if isinstance(state, ContextState):
            return self.heads.merge(rho @ state.S), replace(state, length=length)
        k = present_keys(self.heads.keys(x), Mask(valid=valid))
        sums = state.S, state.z, state.m
        y, S, z, m = causal_means(rho, k, self.heads.values(x), *sums, donate=donate)
        return self.heads.merge(y), State(S, z, m, length)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        a = weights(q, k, mask=mask) if self.normaliser == "softmax" else q @ scaled(k, mask).mT
        return Observation(q, k, v, a)


def scaled(k: Float[Tensor, "B H S K"], mask: Mask) -> Float[Tensor, "B H S K"]:
    """The valid keys over their number; zero where there is none."""
    if mask.valid is None:
        return k / k.shape[2]
    return present(k, mask.valid) / mask.valid.sum(1).clamp(min=1)[:, None, None, None]
