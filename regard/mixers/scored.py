"""Attention by any score (Luong et al. 2015, arXiv 1508.04025; Bahdanau 2014, Graves 2014, Vaswani 2017, Zhou 2018).

    y = concat_h( sum_j w_ij v_j ) W_out,   w_ij = softmax_j score(q_i, k_j)

`score` is a name of SCORES (dot, scaled_dot, general, additive, location, cosine, activation_unit) or a Score class, `score_options` are
its own. `normaliser="sigmoid"` or "none" makes each weight on its own; such sums grow with the number of keys. Scores
meet the queries and keys of a head, after the usual projections, and have parameters for each head, also where `num_kv_heads`
(arXiv 2305.13245) are fewer. They need not be products: no rotary positions, which `softmax` has.

Cost: T^2 (K + V) per head, T^2 (A + V) element-wise for the additive score, A its hidden width. Products with softmax
run on the fused kernel; others are scored for some queries at a time, and again in the backward. Location has one row
of scores for each of `max_len` positions, and no more.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, No, Observation
from regard.core.states import Streamed, as_state
from regard.functional.cache import advance, columns, put
from regard.functional.rows import Impl, check_impl
from regard.functional.scored import Normaliser, scored_attention, scored_weights
from regard.functional.softmax import softmax_attention
from regard.mixers._capabilities import ALL
from regard.nn.heads import Heads, HeadsMixer
from regard.nn.scores import Score, build_score


@as_state
class State(Streamed):
    k: Float[Tensor, "B H C A"]  # prepared by the score
    v: Float[Tensor, "B H C V"]
    length: Int[Tensor, "B"]


@as_state
class ContextState(Streamed):
    k: Float[Tensor, "B H S A"]
    v: Float[Tensor, "B H S V"]
    valid: Bool[Tensor, "B S"]
    length: Int[Tensor, "B"]


class Scored(HeadsMixer):
    __doc__ = __doc__
    name = "scored"
    family = "softmax"
    paper = "Luong et al. 2015, arXiv 1508.04025"
    capabilities = replace(
        ALL,
        state="T H K",
    )
    variants = {
        "general": {"score": "general"},
        "grouped": {"num_kv_heads": 1},
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
        score_options: Mapping[str, Any] | None = None,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl)
        self.num_heads, self.normaliser = num_heads, normaliser
        self.heads = Heads(dim, num_heads, num_kv_heads=num_kv_heads, repeat=True)
        self.score = build_score(
            score, self.heads.head_dim, num_heads=num_heads, max_len=max_len, options=score_options
        )
        if self.score.max_len is not None:
            self.max_len = self.score.max_len
            self.declare(
                any_length=No(f"{self.score.name} scores are one for each of max_len positions")
            )

    def _mixed(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        return self._attend(self.score.queries(q), self.score.keys(k), v, mask)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if self.score.product and self.normaliser == "softmax":
            return softmax_attention(q, k, v, mask=mask, scale=1.0, impl=self.impl)
        return scored_attention(
            q,
            k,
            v,
            pairs=self.score.pairs,
            mask=mask,
            normaliser=self.normaliser,
            width=self.score.width,
            impl=self.impl,
        )

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        if context is not None:
            valid = (
                context.new_ones(context.shape[:2], dtype=torch.bool) if valid is None else valid
            )
            k = self.score.keys(self.heads.keys(context))
            return ContextState(k, self.heads.values(context), valid, length)
        v = weight.new_zeros(batch_size, self.num_heads, max_len or 0, self.heads.head_dim)
        A = self.score.keys(v.new_zeros(1, self.num_heads, 1, self.heads.head_dim)).shape[3]
        return State(v.new_zeros(*v.shape[:3], A), v, length)

    def _extend(self, x, state, valid, donate):
        q = self.score.queries(self.heads.queries(x))
        if isinstance(state, ContextState):
            mixed = self._attend(q, state.k, state.v, Mask(valid=state.valid))
            length = advance(state.length, valid, x.shape[1])
            return self.heads.merge(mixed), replace(state, length=length)
        at = columns(state, valid, x.shape[1], state.k, donate)
        k = put(state.k, self.score.keys(self.heads.keys(x), at.query), at, donate)
        v = put(state.v, self.heads.values(x), at, donate)
        mixed = self._attend(q, k[:, :, : at.seen], v[:, :, : at.seen], at.mask)
        return self.heads.merge(mixed), State(k, v, at.length)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        weights = scored_weights(
            self.score.queries(q),
            self.score.keys(k),
            pairs=self.score.pairs,
            mask=mask,
            normaliser=self.normaliser,
        )
        return Observation(q, k, v, weights)
