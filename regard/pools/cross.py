"""Cross attention as a pool: queries mix the set by any mixer that takes a context; for long histories, a linear one.

    y = mixer(q, context=x)

Values are what the mixer makes of them, and `weights` its map, mean over heads, where it has one. Cost: the mixer's.
"""

from regard.core import Mask, Mixer, Pool, ShapeError


class Cross(Pool):
    """`Cross(dim, mixer=regard.build("linear", dim=dim, num_heads=4))`; UnsupportedError where it takes no context.

    Args:
        mixer: mixer, of `regard ls mixers` or a class
    """

    name = "cross"
    paper = "Vaswani et al. 2017, arXiv 1706.03762"

    def __init__(self, dim: int, *, mixer: Mixer):
        super().__init__(dim, query_dim=dim)
        mixer.require("cross")
        if mixer.dim != dim:
            raise ShapeError(f"cross: the mixer has dim {mixer.dim}, the pool {dim}")
        self.mixer = mixer

    def pool(self, x, query, valid):
        return self.mixer(query, context=x, mask=Mask(valid=valid))

    def weigh(self, x, query, valid):
        return self.mixer.attention_map(query, context=x, mask=Mask(valid=valid)).mean(1)
