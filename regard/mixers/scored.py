"""Attention by any score (Luong et al. 2015, arXiv 1508.04025; Bahdanau 2014, Graves 2014, Vaswani 2017, Zhou 2018).

    y = concat_h( sum_j w_ij v_j ) W_out,   w_ij = softmax_j score(q_i, k_j)

`score` is a name of SCORES (dot, scaled_dot, general, additive, location, cosine, activation_unit) or a Score class, `score_options` are
its own. `normaliser="sigmoid"` or "none" makes each weight on its own; such sums grow with the number of keys. Scores
meet the queries and keys of a head, after the usual projections, and have parameters for each head, also where `num_kv_heads`
(arXiv 2305.13245) are fewer. They need not be products: no rotary positions, which `softmax` has.

Cost: T^2 (K + V) per head, T^2 (A + V) element-wise for the additive score, A its hidden width. Products with softmax
run on the fused kernel; others are scored for some queries at a time, and again in the backward. Location has one row
of scores for each of `max_len` positions, and no more.

Args:
    score: score, of `regard ls scores` or a class
    normaliser: how scores become weights
    score_options: options of the score
"""

from regard.core import No
from regard.functional.held import as_now
from regard.functional.rows import Impl
from regard.functional.scored import Normaliser, scored_attention
from regard.functional.softmax import softmax_attention
from regard.mixers._base import ALL, HeadsMixer, Options
from regard.mixers._cached import CachedMixer
from regard.nn.scores import Score, build_score


class Scored(CachedMixer, HeadsMixer):
    __doc__ = __doc__
    name = "scored"
    family = "softmax"
    paper = "Luong et al. 2015, arXiv 1508.04025"
    capabilities = ALL.but(state="T H K")
    variants = {
        "general": {"score": "general", "num_kv_heads": 1},
        "additive": {"score": "additive", "score_options": {"hidden_dim": 5}},
        "location": {"score": "location"},
        "cosine": {"score": "cosine"},
        "sigmoid": {"score": "dot", "normaliser": "sigmoid"},
        "activation_unit": {
            "score": "activation_unit",
            "score_options": {"interaction": "elementwise", "hidden_dims": (5,)},
        },
        "unnormalised": {"score": "cosine", "normaliser": "none"},
    }
    limits = {"softmax": ({"score": "scaled_dot"}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        score: str | type[Score] = "scaled_dot",
        normaliser: Normaliser = "softmax",
        score_options: Options | None = None,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, max_len=max_len)
        self.normaliser = normaliser
        self.score = build_score(
            score, self.heads.head_dim, num_heads=num_heads, max_len=max_len, options=score_options
        )
        if self.score.max_len is not None:
            self.max_len = self.score.max_len
            self.declare(
                any_length=No(f"{self.score.name} scores are one for each of max_len positions")
            )

    def _split(self, x, context, at=None):
        q, k, v = super()._split(x, context, at)
        return self.score.queries(q), self.score.keys(k, at if context is None else None), v

    def _attend(self, q, k, v, mask, query=None, key=None):
        of = self.score
        normaliser = self.normaliser
        impl = self.impl
        if of.product and normaliser == "softmax":
            return softmax_attention(q, k, v, mask=mask, scale=1.0, impl=impl)
        pairs = as_now(of).pairs
        return scored_attention(
            q, k, v, mask=mask, pairs=pairs, width=of.width, normaliser=normaliser, impl=impl
        )
