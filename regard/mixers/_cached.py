"""Base class of mixers whose stream keeps what it needs of every token: the stores, and the state over a context."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, Mixer
from regard.core.request import first_parameter
from regard.core.states import Streamed, as_state
from regard.functional.cache import advance, columns, place, put
from regard.nn.heads import Heads


@as_state
class State(Streamed):
    k: Float[Tensor, "B G C K"]
    v: Float[Tensor, "B H C V"]
    length: Int[Tensor, "B"]


@as_state
class ContextState(Streamed):
    k: Float[Tensor, "B G S K"]
    v: Float[Tensor, "B H S V"]
    valid: Bool[Tensor, "B S"]
    length: Int[Tensor, "B"]


class CachedMixer(Mixer):
    """y = _merge(x, _attend(q, k, v)), q of the new tokens, k and v of all so far or of the context.

    A mechanism writes `_split` and `_attend`, and `_merge` where it has no heads; an empty k is as good as another.
    """

    heads: Heads

    def _split(
        self, x: Tensor, context: Tensor | None, at: Int[Tensor, "b T"] | None
    ) -> tuple[Any, Tensor, Tensor]:
        """q of the tokens at these positions (None: the first), k and v of the context, or of the same tokens."""
        raise NotImplementedError

    def _attend(
        self,
        q: Any,
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B H S V"],
        mask: Mask,
        query: Int[Tensor, "b T"],
        key: Int[Tensor, "b S"],
    ) -> Tensor:
        """What queries read of keys at these positions; -1 where there is no token."""
        raise NotImplementedError

    def _merge(self, x: Float[Tensor, "B T D"], mixed: Tensor) -> Float[Tensor, "B T _"]:
        return self.heads.merge(mixed)

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = first_parameter(self)
        weight = self.heads.value.weight if weight is None else weight  # heads that are given
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        if context is not None:
            _, k, v = self._split(context[:, :0], context, None)
            every = torch.ones(context.shape[:2], dtype=torch.bool, device=context.device)
            return ContextState(k, v, every if valid is None else valid, length)
        with torch.no_grad():  # one token shows what is kept of each
            _, *kept = self._split(weight.new_zeros(1, 1, self.dim), None, length[:1, None])
        room = max_len or 0
        k, v = (weight.new_zeros(batch_size, z.shape[1], room, z.shape[3]) for z in kept)
        return State(k, v, length)

    def _extend(self, x, state, valid, donate):
        N = x.shape[1]
        if isinstance(state, ContextState):
            new = place(state.length, valid, N)
            key = torch.arange(state.k.shape[2], device=x.device)[None]
            q, _, _ = self._split(x, x[:, :0], new)
            mixed = self._attend(q, state.k, state.v, Mask(valid=state.valid), new, key)
            y = self._merge(x, mixed) * state.valid.any(1)[:, None, None]
            return y, replace(state, length=advance(state.length, valid, N))
        at = columns(state, valid, N, state.v, donate)
        if not self.capabilities.any_length and self.max_len is not None:
            at = at._replace(seen=min(at.seen, self.max_len))  # a store may have more columns
        q, k, v = self._split(x, None, at.query)
        k, v = put(state.k, k, at, donate), put(state.v, v, at, donate)
        seen = k[:, :, : at.seen], v[:, :, : at.seen]
        y = self._merge(x, self._attend(q, *seen, at.mask, at.query, at.key))
        return y, State(k, v, at.length)
