"""Base class of mixers whose keys and values are summed into a state: streaming, and the context's sums."""

from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.core import OPEN, Mask, No, OtherTokens, Queries, Streamed, as_state
from regard.functional.cache import Lengths, advance
from regard.functional.features import Keys
from regard.functional.linear import Denominator, chosen_sums, read, summed
from regard.functional.rows import ranged, widened
from regard.mixers._base import ALL, HeadsMixer


@as_state
class State(Streamed):
    sums = ("S", "z")
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Lengths


class RecurrentMixer(HeadsMixer):
    """y_i = phi(q_i) S_i / n(phi(q_i) z_i),   S_i = d_i S_(i-1) + phi(k_i) v_i^T,   z_i = d_i z_(i-1) + phi(k_i)

    A mechanism sets the denominator n and writes `_attend`, `_queries` and `_keys`.
    """

    family = "linear"
    capabilities = ALL.but(
        pairwise=No(
            "keys are summed before any query meets them, so single pairs cannot be taken out"
        ),
        time="T H M V",
        state="H M V",
    )
    denominator: Denominator

    def _queries(self, q: Queries, mask: Mask) -> Float[Tensor, "B H T M"]:
        """phi(q), which may be another in causal order."""
        raise NotImplementedError

    def _keys(
        self, k: Float[Tensor, "B H S K"], source: OtherTokens, mask: Mask, state: Any
    ) -> Keys:
        """phi(k) and the decays, of tokens `source` that come after those of `state` (None: there were none)."""
        raise NotImplementedError

    def _keep(self, context, valid):
        keys = self._keys(self.heads.keys(context), context, Mask(valid=valid), None)
        return summed(*ranged(keys.phi, self.heads.values(context)))

    def _read(self, x, kept, at):
        sums, total = read(self._queries(self.heads.queries(x), OPEN), *kept)
        return sums / self.denominator(total)

    def _start(self, length, max_len):
        M = self._queries(self.heads.zeros(1, 1), OPEN).shape[3]
        (S,) = widened(self.heads.zeros(len(length), M))
        return State(S, S[..., 0].clone(), length)

    def _step(self, x, state, valid, donate):
        q, k, v = self.heads.split(x, None, state.length)
        mask = Mask(causal=True, valid=valid)
        keys = self._keys(k, x, mask, state)
        given = self._queries(q, mask), keys.phi, v, keys.log_decay, state.S, state.z
        sums, total, S, z = chosen_sums(*widened(*given), impl=self.impl, donate=donate)
        carried = {} if keys.c is None else {"c": keys.c.type_as(S)}
        length = advance(state.length, valid, x.shape[1])
        return (sums / self.denominator(total)).type_as(v), replace(
            state, S=S, z=z, length=length, **carried
        )
