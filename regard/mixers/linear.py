"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j),   phi(x) = elu(x) + 1

The sums run over all keys, or over j <= i when causal. Cost: T M V per head; state: M (V + 1) per head.
No scale on q k, as in the paper; eps = 1e-6 is added to the denominator, as in the official code. `feature_map` takes a
name of FEATURE_MAPS or any function [.. K] -> [.. M] with values that are not negative.
"""

from collections.abc import Callable

from torch import Tensor

from regard.functional.choice import Impl
from regard.functional.features import Keys, feature_map as resolve, present
from regard.functional.linear import linear_attention, positive
from regard.mixers._recurrent import RecurrentMixer


class Linear(RecurrentMixer):
    __doc__ = __doc__
    name = "linear"
    paper = "Katharopoulos et al. 2020, arXiv 2006.16236"
    variants = {"softplus": {"feature_map": "softplus"}}
    denominator = staticmethod(positive)

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        feature_map: str | Callable[[Tensor], Tensor] = "elu_plus_one",
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads=num_heads, impl=impl, operation="linear")
        self.phi = resolve(feature_map)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        mixed = linear_attention(q, k, v, mask=mask, feature_map=self.phi, impl=self.impl)
        return self.heads.merge(mixed)

    @property
    def num_channels(self):
        return self.phi(self.heads.value.weight.new_zeros(1, self.heads.head_dim)).shape[-1]

    def _queries(self, q, mask):
        return self.phi(q)

    def _keys(self, k, source, mask, state):
        return Keys(present(self.phi(k), mask.valid))
