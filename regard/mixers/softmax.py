"""Scaled dot-product attention with several heads (Vaswani et al. 2017, arXiv 1706.03762).

    y = concat_h( softmax(q_h k_h^T / sqrt(K)) v_h ) W_out

Cost: T S (K + V) per head; the fused kernel stores no weights. Options beyond the paper: fewer key/value heads
(`num_kv_heads`, arXiv 2305.13245); keys made from the queries (`shared_qk`, arXiv 2001.04451), where keys have unit
norm, the scale is 1 and a token sees itself only if it sees nothing else; positions inside attention (`position`):
"rotary" turns queries and keys (arXiv 2104.09864), "alibi" (arXiv 2108.12409) and "t5" (arXiv 1910.10683) add a number
to each scaled score, T H S more, computed for one tile of queries at a time. `position_options` are the kind's own; layers share a
table of "t5" when one module is given to all: `layer.position = first.position`. T5 itself has `scale=1.0`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import OPEN, Mask, No, Observation
from regard.core.options import Rate
from regard.core.states import Streamed, as_state
from regard.functional.cache import advance, columns, put
from regard.functional.rows import Impl, check_impl
from regard.functional.softmax import Bias, softmax_attention, softmax_weights
from regard.mixers._capabilities import ALL
from regard.nn.heads import Heads, HeadsMixer
from regard.positions.inside import inside
from regard.positions.relative import T5, Alibi


@as_state
class State(Streamed):
    k: Float[Tensor, "B G C K"]
    v: Float[Tensor, "B G C V"]
    length: Int[Tensor, "B"]


@as_state
class ContextState(Streamed):
    k: Float[Tensor, "B G S K"]
    v: Float[Tensor, "B G S V"]
    valid: Bool[Tensor, "B S"]
    length: Int[Tensor, "B"]


class Softmax(HeadsMixer):
    __doc__ = __doc__
    name = "softmax"
    family = "softmax"
    paper = "Vaswani et al. 2017, arXiv 1706.03762"
    capabilities = replace(
        ALL,
        positions=frozenset({"absolute", "rotary", "alibi", "t5"}),
        state="T G K",
    )
    variants = {
        "grouped_query": {"num_kv_heads": 1},
        "shared_qk": {"shared_qk": True},
        "bias": {"bias": True},
        "rotary": {"position": "rotary"},
        "alibi": {"position": "alibi"},
        "t5": {"position": "t5", "position_options": {"num_buckets": 8, "max_distance": 6}},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        shared_qk: bool = False,
        scale: float | None = None,
        bias: bool = False,
        position: str | None = None,
        position_options: Mapping[str, Any] | None = None,
        dropout: Rate = 0.0,
        impl: Impl = "auto",
    ):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, "softmax")
        self.num_heads = num_heads
        self.position = inside(self, num_heads, position, position_options)
        self.heads = Heads(
            dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            bias=bias,
            shared_qk=shared_qk,
            position=self.position,
            alike=not isinstance(self.position, Alibi | T5),
        )
        self.scale = 1.0 if shared_qk and scale is None else scale
        self.shared_qk = shared_qk
        self.dropout = dropout
        if self.position is not None:
            self.declare(cross=No("relative positions need queries and keys on one axis"))
        if shared_qk:
            self.declare(cross=No("its keys are the queries of the same tokens"))

    def _mixed(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        position = torch.arange(x.shape[1], device=x.device)[None]
        bias = self._bias(position, position, q.dtype)
        how: dict[str, Any] = {"mask": mask, "exclude_self": self.shared_qk, "bias": bias}
        return softmax_attention(q, k, v, **how, **self._how)

    def _bias(
        self, query: Int[Tensor, "#b T"], key: Int[Tensor, "#b S"], dtype: torch.dtype
    ) -> Bias | None:
        """Bias added to the scores of queries and keys at these positions."""
        of = self.position
        if not isinstance(of, Alibi | T5):
            return None
        return lambda rows, cols: of.bias(query[:, rows], key[:, cols], dtype)

    @property
    def _how(self) -> dict[str, Any]:
        dropout = self.dropout if self.training else 0.0
        return {"scale": self.scale, "dropout": dropout, "impl": self.impl}

    def _initial_state(self, batch_size, max_len, context, valid):
        if context is not None:
            length = context.new_zeros(batch_size, dtype=torch.long)
            valid = (
                context.new_ones(context.shape[:2], dtype=torch.bool) if valid is None else valid
            )
            return ContextState(self.heads.keys(context), self.heads.values(context), valid, length)
        k, v = (self.heads.zeros(batch_size, max_len or 0) for _ in "kv")
        return State(k, v, torch.zeros(batch_size, dtype=torch.long, device=v.device))

    def _extend(self, x, state, valid, donate):
        if isinstance(state, ContextState):
            q, mask = self.heads.queries(x), Mask(valid=state.valid)
            mixed = softmax_attention(q, state.k, state.v, mask=mask, **self._how)
            y = self.heads.merge(mixed) * state.valid.any(1)[:, None, None]
            return y, replace(state, length=advance(state.length, valid, x.shape[1]))
        q, new_k, new_v = self.heads.split(x, None, state.length)
        at = columns(state, valid, x.shape[1], state.k, donate)
        k, v = put(state.k, new_k, at, donate), put(state.v, new_v, at, donate)
        mask, seen, exclude_self = at.mask, at.seen, self.shared_qk
        if exclude_self and mask is OPEN:  # one token after all others
            exclude_self, seen = False, max(seen - 1, 1)
        elif (
            mask.pairwise is not None and exclude_self
        ):  # all but the first token have an earlier one to see
            query, key = at.query[:, :, None], at.key[:, None]
            first_or_other = (query == 0) | (key != query)
            mask, exclude_self = Mask(pairwise=mask.pairwise & first_or_other[:, None]), False
        bias = self._bias(at.query, at.key, q.dtype)
        how: dict[str, Any] = {"mask": mask, "exclude_self": exclude_self, "bias": bias}
        mixed = softmax_attention(q, k[:, :, :seen], v[:, :, :seen], **how, **self._how)
        return self.heads.merge(mixed), State(k, v, at.length)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        position = torch.arange(x.shape[1], device=x.device)[None]
        bias = self._bias(position, position, q.dtype)
        weights = softmax_weights(
            q,
            k,
            mask=mask,
            scale=self.scale,
            exclude_self=self.shared_qk,
            bias=bias,
        )
        return Observation(q, k, v, weights)
