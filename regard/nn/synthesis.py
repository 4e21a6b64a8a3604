"""Synthesis: what all Synthesizers share around their logits, in one forward and token by token."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask, Observation
from regard.core.states import Streamed, as_state
from regard.functional.choice import Impl
from regard.functional.shared.cache import columns, put
from regard.functional.synthetic.synthesizer import (
    synthesizer_attention,
    synthesizer_weights,
    to_columns,
)
from regard.nn.values import Values


@as_state
class State(Streamed):
    v: Float[Tensor, "B H C V"]
    length: Int[Tensor, "B"]


class Synthesis(nn.Module):
    """y = concat_h( softmax(B_h) v_h ) W_out with logits B from `logits` (see `regard.nn.logits`)."""

    def __init__(
        self, dim: int, num_heads: int, max_len: int, logits: nn.Module, impl: Impl = "auto"
    ):
        super().__init__()
        self.max_len, self.impl = max_len, impl
        self.logits = logits
        self.values = Values(dim, num_heads)

    def mix(self, x: Float[Tensor, "B T D"], mask: Mask) -> Float[Tensor, "B T D"]:
        T, v = x.shape[1], self.values.split(x)
        mixed = synthesizer_attention(self.logits(x), v, T=T, mask=mask, impl=self.impl)
        return self.values.merge(mixed)

    def initial_state(self, batch_size: int, max_len: int | None) -> State:
        weight = self.values.value.weight
        v = weight.new_zeros(batch_size, self.values.num_heads, max_len or 0, self.values.head_dim)
        return State(v, torch.zeros(batch_size, dtype=torch.long, device=weight.device))

    def extend(
        self,
        x: Float[Tensor, "B N D"],
        state: State,
        valid: Bool[Tensor, "B N"] | None,
        donate: bool,
    ) -> tuple[Float[Tensor, "B N D"], State]:
        T, at = x.shape[1], columns(state, valid, x.shape[1], state.v, donate)
        v = put(state.v, self.values.split(x), at, donate)
        made = self.logits(x, at.query.clamp_min(0))

        def logits(rows: slice, S: int) -> Tensor:
            return to_columns(made(rows, min(S, self.max_len)), S)

        seen = v[:, :, : at.seen]
        mixed = synthesizer_attention(logits, seen, T=T, mask=at.mask, impl=self.impl)
        return self.values.merge(mixed), State(v, at.length)

    def observe(self, x: Float[Tensor, "B T D"], mask: Mask) -> Observation:
        T, v = x.shape[1], self.values.split(x)
        weights = synthesizer_weights(self.logits(x), T, T, mask=mask, device=x.device)
        weights = weights.to(v.dtype).expand(*v.shape[:2], -1, -1)
        return Observation(v=v, weights=weights, heads=weights @ v)
