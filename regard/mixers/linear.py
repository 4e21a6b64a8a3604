"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j),   phi(x) = elu(x) + 1

The sums run over all keys, or over j <= i when causal. Cost: T M V per head; state: M (V + 1) per head.
No scale on q k, as in the paper; eps = 1e-6 is added to the denominator, as in the official code. `feature_map` takes a
name of FEATURE_MAPS or any function [.. K] -> [.. M] with values that are not negative.
"""

from collections.abc import Callable

from torch import Tensor

from regard.functional.linear.attention import linear_attention, positive
from regard.functional.linear.chunked import present
from regard.functional.linear.feature_maps import feature_map as resolve
from regard.functional.shared.implementation import Impl
from regard.mixers._kernel import KernelMixer


class Linear(KernelMixer):
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
        super().__init__(dim, num_heads=num_heads, kernel="linear", impl=impl)
        self.phi = resolve(feature_map)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        return self.heads.merge(
            linear_attention(q, k, v, mask=mask, feature_map=self.phi, impl=self.impl)
        )

    @property
    def num_channels(self):
        return self.phi(self.heads.value.weight.new_zeros(1, self.heads.head_dim)).shape[-1]

    def _query_features(self, q, *, causal):
        return self.phi(q)

    def _key_features(self, k, x, valid, state):
        return self._context_features(k, valid), None, {}

    def _context_features(self, k, valid):
        return present(self.phi(k), valid)
