"""Mixture of block attention, MoBA (Lu et al. 2025, arXiv 2502.13189): each query reads its own block of keys and a few others.

    y_i = concat_h( softmax over { j in the own block of i and in top_(k-1) of q_i . mean key of a block } of q_i k_j / sqrt(K)  v_j ) W_out

`top_k` = k counts the own block, which is causal inside. In causal order blocks wholly before the own one are compared; in both directions all are, the last
one by the mean of the tokens that it has. The choice has no gradient and no parameters: weights are those of softmax attention, and with k blocks or fewer it *is* softmax
attention. Cost: T^2 / C K for the choice and T k C (K + V) a head, C = `block_size`. A stream keeps keys and values, and makes the means anew. Published runs have blocks of 4,096,
k = 12 and dense attention in the last three layers. `num_kv_heads`: arXiv 2305.13245; `position="rotary"`: arXiv 2104.09864, means are of turned keys.

Args:
    block_size: tokens of a block of keys
    top_k: blocks that a query reads, its own among them
"""

from regard.core import No
from regard.functional.rows import Impl, grouped, scores, unrounded
from regard.functional.selected import block_means, bounds, marks
from regard.mixers._base import Options
from regard.mixers._selected import SelectedMixer


class MoBA(SelectedMixer):
    __doc__ = __doc__
    name = "moba"
    paper = "Lu et al. 2025, arXiv 2502.13189"
    capabilities = SelectedMixer.capabilities.but(
        pairwise=No(
            "a block is chosen by the mean of all its keys, those that a query may not see, too"
        ),
        cross=No("a query begins with its own block, and has none in a context"),
    )
    variants = {
        "small": {"block_size": 3, "top_k": 2},
        "grouped": {"block_size": 2, "top_k": 3, "num_kv_heads": 1, "position": "rotary"},
    }
    limits = {"softmax": ({"block_size": 3, "top_k": 5}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        block_size: int = 64,
        top_k: int = 4,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        of_heads = dim, num_heads, num_kv_heads, impl, position, position_options
        super().__init__(top_k, block_size, *of_heads, alike=True)

    def _split(self, x, context, at=None):
        """Queries and keys in the type of parameters, also under autocast: a choice would move, and a stream chooses by the keys that it keeps."""
        x = x.to(self.heads.query.weight.dtype)
        with unrounded(x):
            return super()._split(x, None if context is None else context.type_as(x), at)

    def _index(self, q, k, mask):
        last, own = bounds(mask, q, k)
        means = grouped(block_means(k.detach(), self.block_size, last), q.shape[1])

        def index(rows):
            with unrounded(q):
                found = scores(q[:, :, rows], means, 1.0)
            return found, *marks(found, self.block_size, last[:, rows], own[:, rows])

        return index
