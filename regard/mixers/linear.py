"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j),   phi(x) = elu(x) + 1

The sums run over all keys, or over j <= i when causal. Cost: T M V per head; state: M (V + 1) per head.
No scale on q k, as in the paper; eps = 1e-6 is added to the denominator, as in the official code. `feature_map` takes a
name of FEATURE_MAPS or any function [.. K] -> [.. M] with values that are not negative.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Capabilities, Mixer, No, Observation
from regard.functional.linear.attention import (
    causal_sums,
    kernel_weights,
    linear_attention,
    positive,
    read,
    summed,
)
from regard.functional.linear.feature_maps import feature_map as resolve
from regard.functional.shared.cache import advance
from regard.functional.shared.implementation import Impl, check_impl
from regard.nn.heads import Heads


class State(NamedTuple):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class ContextState(NamedTuple):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class Linear(Mixer):
    name = "linear"
    family = "linear"
    paper = "Katharopoulos et al. 2020, arXiv 2006.16236"
    capabilities = Capabilities(
        causal=True,
        pairwise=No(
            "keys are summed before any query meets them, so single pairs cannot be taken out"
        ),
        global_tokens=True,
        cross=True,
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute"}),
        time="T H M V",
        memory="T D",
        state="H M V",
    )
    variants = {"softplus": {"feature_map": "softplus"}}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        feature_map: str | Callable[[Tensor], Tensor] = "elu_plus_one",
        impl: Impl = "auto",
    ):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, "linear")
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        self.phi = resolve(feature_map)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        return self.heads.merge(
            linear_attention(q, k, v, mask=mask, feature_map=self.phi, impl=self.impl)
        )

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        if context is not None:
            phi_k = self.phi(self.heads.keys(context))
            if valid is not None:
                phi_k = phi_k * valid[:, None, :, None]
            return ContextState(*summed(phi_k, self.heads.values(context)), length)
        M, V = self.phi(weight.new_zeros(1, self.heads.head_dim)).shape[-1], self.heads.head_dim
        shape = (batch_size, self.num_heads, M)
        return State(weight.new_zeros(*shape, V), weight.new_zeros(shape), length)

    def _extend(self, x, state, valid, donate):
        length = advance(state.length, valid, x.shape[1])
        if isinstance(state, ContextState):
            sums, total = read(self.phi(self.heads.queries(x)), state.S, state.z)
            return self.heads.merge(sums / positive(total)), state._replace(length=length)
        q, k, v = self.heads.split(x)
        phi_q, phi_k = self.phi(q), self.phi(k)
        if valid is not None:
            phi_k = phi_k * valid[:, None, :, None]
        sums, total, S, z = causal_sums(
            phi_q, phi_k, v, state.S, state.z, impl=self.impl, donate=donate
        )
        return self.heads.merge(sums / positive(total)), State(S, z, length)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        weights = kernel_weights(self.phi(q), self.phi(k), mask=mask)
        return Observation(q, k, v, weights, weights @ v)
