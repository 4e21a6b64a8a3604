"""Base class of mixers over queries, keys and values: what lies between heads and output is said once, in `_mixed`."""

from jaxtyping import Float
from torch import Tensor

from regard.core import Mask, Mixer, Observation
from regard.nn.heads import Heads


class HeadsMixer(Mixer):
    """y = heads.merge(_mixed(x)). A mechanism sets `heads`, and writes `_mixed` in the place of `mix`."""

    heads: Heads

    def mix(self, x, context, mask):
        return self.heads.merge(self._mixed(x, context, mask))

    def _mixed(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S D"] | None, mask: Mask
    ) -> Float[Tensor, "B H T V"]:
        """Outputs of the heads."""
        raise NotImplementedError(f"{type(self).__name__} defines neither _mixed nor mix")

    def _observe_heads(self, x, context, mask):
        v = self.heads.values(x if context is None else context)
        return Observation(v=v, heads=self._mixed(x, context, mask))
