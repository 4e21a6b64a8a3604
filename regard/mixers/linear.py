"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j),   phi(x) = elu(x) + 1

The sums run over all keys, or over j <= i when causal. Cost: T M V per head; state: M (V + 1) per head.
No scale on q k, as in the paper; eps = 1e-6 is added to the denominator, as in the official code. `feature_map` takes a
name of FEATURE_MAPS or any function [.. K] -> [.. M] with values that are not negative. `num_kv_heads`: arXiv 2305.13245.
`position="rotary"` (arXiv 2104.09864, 3.3) turns phi(q) and phi(k) in the numerator alone: turned features may be negative, and a
denominator of them zero. Weights then do not sum to one.

Args:
    feature_map: map of queries and keys to positive features, by name or as a function
"""

from torch import Tensor

from regard.core import Mask, TensorMap
from regard.functional.cache import advance
from regard.functional.features import Keys, feature_map as resolve, present
from regard.functional.linear import linear_attention, positive, turned_sums
from regard.functional.rows import Impl, ranged, upto, widened
from regard.mixers._base import Options
from regard.mixers._recurrent import RecurrentMixer, State


class Linear(RecurrentMixer):
    __doc__ = __doc__
    name = "linear"
    paper = "Katharopoulos et al. 2020, arXiv 2006.16236"
    capabilities = RecurrentMixer.capabilities.but(
        positions=frozenset({"absolute", "rotary"}), exchange="sums"
    )
    variants = {
        "softplus": {"feature_map": "softplus"},
        "grouped": {"num_kv_heads": 1, "position": "rotary"},
    }
    operations = ("causal sums",)
    denominator = staticmethod(positive)

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        feature_map: str | TensorMap = "elu_plus_one",
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(
            dim, num_heads, num_kv_heads, impl, position, position_options, turned=False, alike=True
        )
        self.phi = resolve(feature_map)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        if self.position is not None:
            return self.heads.merge(self._turned(q, k, v, mask)[0])
        y = linear_attention(q, k, v, mask=mask, feature_map=self.phi, impl=self.impl)
        return self.heads.merge(y)

    def _turned(
        self, q, k, v, mask: Mask, state: State | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of the heads, and the sums S, z after them."""
        dtype = v.dtype
        S, z = (None, None) if state is None else widened(state.S, state.z)
        q, k, v = (ranged if state is None else widened)(q, k, v)
        phi_q = self.phi(q)
        phi_k = present(self.phi(k), mask.valid)
        place = upto(q.shape[2], q)
        place = place if state is None else state.length[:, None] + place
        a, e = (self.position.rotate(phi, place) for phi in (phi_q, phi_k))
        sums, total, S, z = turned_sums(
            phi_q, phi_k, v, a, e, S, z, causal=mask.causal, impl=self.impl
        )
        return (sums / positive(total)).to(dtype), S, z

    def _step(self, x, state, valid, donate):
        if self.position is None:
            return super()._step(x, state, valid, donate)
        mixed, S, z = self._turned(*self.heads.split(x), Mask(causal=True, valid=valid), state)
        return mixed, State(S, z, advance(state.length, valid, x.shape[1]))

    def _queries(self, q, mask):
        return self.phi(q)

    def _keys(self, k, source, mask, state):
        return Keys(present(self.phi(k), mask.valid))
