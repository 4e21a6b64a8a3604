"""Base class of mixers whose stream keeps what it needs of every token."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Mask, Streamed, as_state
from regard.functional.cache import Lengths, columns, put
from regard.mixers._base import SplitMixer


@as_state
class State(Streamed):
    k: Float[Tensor, "B G C K"]
    v: Float[Tensor, "B H C V"]
    length: Lengths


class CachedMixer(SplitMixer):
    """y = _merge(x, _attend(q, k, v)), q of the new tokens, k and v of all so far or of the context.

    A mechanism writes `_split` and `_attend`, and `_merge` where it has no heads; an empty k is as good as another.
    """

    def _start(self, length, max_len):
        weight = self._like
        with torch.no_grad():  # one token shows what is kept of each
            _, *kept = self._split(weight.new_zeros(1, 1, self.dim), None, length[:1, None])
        k, v = (weight.new_zeros(len(length), z.shape[1], max_len or 0, z.shape[3]) for z in kept)
        return State(k, v, length)

    def _step(self, x, state, valid, donate):
        at = columns(state, valid, x.shape[1], state.v, donate)
        if not self.capabilities.any_length and self.max_len is not None:
            at = at._replace(seen=min(at.seen, self.max_len))  # a store may have more columns
        query = at.query.clamp_min(0)
        q, k, v = self._split(x, None, query)
        k = put(state.k, k, at, donate)
        v = put(state.v, v, at, donate)
        seen = k[:, :, : at.seen], v[:, :, : at.seen]
        return self._attend(q, *seen, at.mask, query, at.key), State(k, v, at.length)

    def _keep(self, context, valid):
        _, k, v = self._split(context[:, :0], context)
        return k, v, valid

    def _read(self, x, kept, at):
        k, v, valid = kept
        q, _, _ = self._split(x, x[:, :0], at)
        key = torch.arange(k.shape[2], device=x.device)[None]
        return self._attend(q, k, v, Mask(valid=valid), at, key)
