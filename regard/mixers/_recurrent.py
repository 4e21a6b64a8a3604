"""Base class of mixers whose keys and values are summed into a state: heads, streaming, the context's sums and maps."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Mask, No, Observation
from regard.core.mask import OPEN
from regard.core.states import Streamed, as_state
from regard.functional.cache import advance
from regard.functional.features import Keys
from regard.functional.linear import Denominator, causal_sums, read, summed, weights
from regard.functional.rows import Impl, check_impl
from regard.mixers._capabilities import ALL
from regard.nn.heads import Heads, HeadsMixer
from regard.positions.inside import inside


@as_state
class State(Streamed):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


@as_state
class ContextState(Streamed):
    """The sums over all keys of the context, which every query reads."""

    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class RecurrentMixer(HeadsMixer):
    """y_i = phi(q_i) S_i / n(phi(q_i) z_i),   S_i = d_i S_(i-1) + phi(k_i) v_i^T,   z_i = d_i z_(i-1) + phi(k_i)

    `turned`: positions turn queries and keys before phi.
    A mechanism sets the denominator n and writes `_mixed`, `_queries` and `_keys`.
    """

    family = "linear"
    capabilities = replace(
        ALL,
        pairwise=No(
            "keys are summed before any query meets them, so single pairs cannot be taken out"
        ),
        time="T H M V",
        state="H M V",
    )
    denominator: Denominator

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None,
        impl: Impl,
        operation: str,
        alike: bool = True,
        position: str | None = None,
        position_options: Mapping[str, Any] | None = None,
        turned: bool = True,
    ):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, operation, "causal sums")
        self.num_heads = num_heads
        self.position = inside(self, num_heads, position, position_options)
        if self.position is not None:
            self.declare(cross=No("relative positions need queries and keys on one axis"))
        self.heads = Heads(
            dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            repeat=True,
            alike=alike,
            position=self.position if turned else None,
        )

    def _queries(self, q: Float[Tensor, "B H T K"], mask: Mask) -> Float[Tensor, "B H T M"]:
        """phi(q), which may be another in causal order."""
        raise NotImplementedError

    def _keys(
        self, k: Float[Tensor, "B H S K"], source: Float[Tensor, "B S D"], mask: Mask, state: Any
    ) -> Keys:
        """phi(k) and the decays, of tokens `source` that come after those of `state` (None: there were none)."""
        raise NotImplementedError

    def _initial_state(self, batch_size, max_len, context, valid):
        length = torch.zeros(batch_size, dtype=torch.long, device=self.heads.value.weight.device)
        if context is None:
            return self._empty(length)
        keys = self._keys(self.heads.keys(context), context, Mask(valid=valid), None)
        return ContextState(*summed(keys.phi, self.heads.values(context)), length)

    def _empty(self, length: Int[Tensor, "B"]) -> Any:
        """The state before the first token."""
        M = self._queries(self.heads.zeros(1, 1), OPEN).shape[3]
        S = self.heads.zeros(len(length), M)
        return State(S, S[..., 0].clone(), length)

    def _extend(self, x, state, valid, donate):
        length = advance(state.length, valid, x.shape[1])
        if isinstance(state, ContextState):
            sums, total = read(self._queries(self.heads.queries(x), OPEN), state.S, state.z)
            return self.heads.merge(sums / self.denominator(total)), replace(state, length=length)
        q, k, v = self.heads.split(x, None, state.length)
        mask = Mask(causal=True, valid=valid)
        keys = self._keys(k, x, mask, state)
        sums, total, S, z = causal_sums(
            self._queries(q, mask),
            keys.phi,
            v,
            keys.log_decay,
            state.S,
            state.z,
            impl=self.impl,
            donate=donate,
        )
        carried = {} if keys.c is None else {"c": keys.c.to(S.dtype)}
        state = replace(state, S=S, z=z, length=length, **carried)
        return self.heads.merge(sums / self.denominator(total)), state

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        keys = self._keys(k, x if context is None else context, mask, None)
        a = weights(self._queries(q, mask), keys, mask=mask, denominator=self.denominator)
        return Observation(q, k, v, a)
