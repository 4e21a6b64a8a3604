"""Base class of mixers with a product of feature maps: heads, the sums of keys, streaming and maps."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Capabilities, Mixer, No, Observation
from regard.functional.linear.attention import causal_sums, kernel_weights, read, summed
from regard.functional.shared.cache import advance
from regard.functional.shared.implementation import Impl, check_impl
from regard.nn.heads import Heads


class State(NamedTuple):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class ContextState(NamedTuple):
    """The sums over all keys of the context, which every query reads."""

    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class KernelMixer(Mixer):
    """y_i = phi(q_i) S_i / n(phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j)

    A mechanism sets the denominator n and writes `mix`, `num_channels`, `_query_features`, `_key_features` and
    `_context_features`.
    """

    family = "linear"
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

    def __init__(self, dim: int, *, num_heads: int, kernel: str, impl: Impl):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, kernel)
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)

    @staticmethod
    def denominator(total: Float[Tensor, "B H T 1"]) -> Float[Tensor, "B H T 1"]:
        """n, of the sum of a row's weights."""
        raise NotImplementedError

    @property
    def num_channels(self) -> int:
        """M, the width of phi."""
        raise NotImplementedError

    def _query_features(
        self, q: Float[Tensor, "B H T K"], *, causal: bool
    ) -> Float[Tensor, "B H T M"]:
        raise NotImplementedError

    def _key_features(
        self, k: Float[Tensor, "B H T K"], x: Tensor, valid: Tensor | None, state: Any
    ) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        """phi(k) in causal order, zero where not valid; the log-decay; fields of the state beside S, z and length.

        state: the one before these tokens; None at the start.
        """
        raise NotImplementedError

    def _context_features(
        self, k: Float[Tensor, "B H S K"], valid: Tensor | None
    ) -> Float[Tensor, "B H S M"]:
        """phi(k) without an order, zero where not valid."""
        raise NotImplementedError

    def _empty(self, batch_size: int) -> Any:
        """The state before the first token."""
        weight = self.heads.value.weight
        z = weight.new_zeros(batch_size, self.num_heads, self.num_channels)
        S = weight.new_zeros(*z.shape, self.heads.head_dim)
        return State(S, z, torch.zeros(batch_size, dtype=torch.long, device=weight.device))

    def _initial_state(self, batch_size, max_len, context, valid):
        if context is None:
            return self._empty(batch_size)
        phi_k = self._context_features(self.heads.keys(context), valid)
        length = torch.zeros(batch_size, dtype=torch.long, device=phi_k.device)
        return ContextState(*summed(phi_k, self.heads.values(context)), length)

    def _extend(self, x, state, valid, donate):
        length = advance(state.length, valid, x.shape[1])
        if isinstance(state, ContextState):
            phi_q = self._query_features(self.heads.queries(x), causal=False)
            sums, total = read(phi_q, state.S, state.z)
            return self.heads.merge(sums / self.denominator(total)), state._replace(length=length)
        q, k, v = self.heads.split(x)
        phi_k, log_decay, other = self._key_features(k, x, valid, state)
        phi_q = self._query_features(q, causal=True)
        sums, total, S, z = causal_sums(
            phi_q, phi_k, v, state.S, state.z, log_decay=log_decay, impl=self.impl, donate=donate
        )
        after = state._replace(S=S, z=z, length=length, **other)
        return self.heads.merge(sums / self.denominator(total)), after

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        phi_q, log_decay = self._query_features(q, causal=mask.causal), None
        if mask.causal:
            phi_k, log_decay, _ = self._key_features(k, x, mask.valid, None)
        else:
            phi_k = self._context_features(k, mask.valid)
        weights = kernel_weights(
            phi_q, phi_k, mask=mask, log_decay=log_decay, denominator=self.denominator
        )
        return Observation(q, k, v, weights, weights @ v)
