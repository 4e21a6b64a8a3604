"""Scaled dot-product attention with several heads (Vaswani et al. 2017, arXiv 1706.03762).

    y = concat_h( softmax(q_h k_h^T / sqrt(K)) v_h ) W_out

Cost: T S (K + V) per head; the fused kernel stores no weights. Options beyond the paper: fewer key/value heads
(`num_kv_heads`, arXiv 2305.13245); keys made from the queries (`shared_qk`, arXiv 2001.04451), where keys have unit
norm, the scale is 1 and a token sees itself only if it sees nothing else; positions inside attention (`position`):
"rotary" turns queries and keys (arXiv 2104.09864), "alibi" (arXiv 2108.12409) and "t5" (arXiv 1910.10683) add a number
to each scaled score, T H S more, computed for one tile of queries at a time. `position_options` are the kind's own; layers share a
table of "t5" when one module is given to all: `layer.position = first.position`. T5 itself has `scale=1.0`. Today's models
add norms of queries and keys (`qk_norm`: of heads as Qwen3, "all" as OLMo 2), a `soft_cap` (Gemma 2), an output `gate`
(arXiv 2505.06708) and `sinks` (GPT-OSS), which `soft_cap` caps as it caps scores. A capped softmax has no fused kernel.

Args:
    shared_qk: True: keys are made from the queries
    scale: factor of q . k before the normaliser, or the name of its rule; None: 1 / sqrt(K)
    dropout: share of values that is set to zero in training
"""

from copy import copy
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OPEN, Above0, Mask, Observation, Rate
from regard.functional.held import as_now
from regard.functional.rows import Impl, upto
from regard.functional.softmax import behind_sink, softmax_attention, softmax_weights
from regard.mixers._base import ALL, HeadsMixer, Options
from regard.mixers._cached import CachedMixer
from regard.nn.heads import HeadBias, HeadNorm
from regard.positions.relative import BiasPosition


class Softmax(CachedMixer, HeadsMixer):
    __doc__ = __doc__
    name = "softmax"
    family = "softmax"
    paper = "Vaswani et al. 2017, arXiv 1706.03762"
    operations = ("softmax",)
    capabilities = ALL.but(
        positions=frozenset({"absolute", "rotary", "alibi", "t5"}), state="T G K", exchange="keys"
    )
    variants = {
        "grouped": {"num_kv_heads": 1, "bias": True},
        "shared_qk": {"shared_qk": True},
        "rotary": {"position": "rotary"},
        "alibi": {"position": "alibi"},
        "t5": {"position": "t5", "position_options": {"num_buckets": 8, "max_distance": 6}},
        "modern": {
            "position": "rotary",
            "position_options": {"channels": 4},
            "head_dim": 6,
            "num_kv_heads": 1,
            "bias": "qkv",
            "qk_norm": True,
            "gate": True,
            "sinks": True,
        },
        "capped": {"soft_cap": 0.5, "sinks": True, "qk_norm": "all", "position": "alibi"},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        shared_qk: bool = False,
        head_dim: int | None = None,
        scale: float | None = None,
        bias: HeadBias = False,
        qk_norm: HeadNorm = False,
        soft_cap: Above0 | None = None,
        gate: bool = False,
        sinks: bool = False,
        position: str | None = None,
        position_options: Options | None = None,
        dropout: Rate = 0.0,
        impl: Impl = "auto",
    ):
        super().__init__(
            dim,
            num_heads,
            num_kv_heads,
            impl,
            position,
            position_options,
            head_dim=head_dim,
            qk_norm=qk_norm,
            gate=gate,
            sinks=sinks,
            bias=bias,
            shared_qk=shared_qk,
            repeat=False,
            alike=True,
        )
        if shared_qk:
            self.declare(finite_to=10.0)
        self.scale = 1.0 if shared_qk and scale is None else scale
        self.shared_qk = shared_qk
        self.dropout = dropout
        self.soft_cap = soft_cap

    added: Float[Tensor, "b h T S"] | None = None  # to scaled scores, beside the bias of positions

    def adding(self, numbers: Float[Tensor, "b h T S"]) -> "Softmax":
        """A copy with the same parameters that adds these numbers to the scaled scores of tokens without padding; not for streams."""
        made = copy(self)
        made.added = numbers
        return made

    def _attend(self, q, k, v, mask, query=None, key=None):
        how = self._how(q, query, key)
        if self.shared_qk and query is not None:
            if mask is OPEN:  # one token after all others
                before = slice(max(k.shape[2] - 1, 1))
                k, v, how["exclude_self"] = k[:, :, before], v[:, :, before], False
            elif mask.pairwise is not None:  # all but the first see an earlier one
                query = query[:, :, None]
                mask = Mask(
                    pairwise=mask.pairwise & ((query == 0) | (key[:, None] != query))[:, None]
                )
                how["exclude_self"] = False
        T = q.shape[2]
        dropout = self.dropout if self.training else 0.0
        if self.sinks is not None:
            q, k, v, mask, how = behind_sink(q, k, v, self.sinks, mask, how)
        y = softmax_attention(q, k, v, mask=mask, dropout=dropout, impl=self.impl, **how)
        return y[:, :, -T:]

    def _observe(self, x, context, mask):
        q, k, v = self._split(x, context)
        behind = q
        keys = k
        how = self._how(q)
        if self.sinks is not None:
            behind, keys, _, mask, how = behind_sink(q, k, v, self.sinks, mask, how)
        weights = softmax_weights(behind, keys, mask=mask, **how)
        return Observation(q, k, v, weights[:, :, -q.shape[2] :, -k.shape[2] :])

    def _how(
        self,
        q: Tensor,
        query: Int[Tensor, "#b T"] | None = None,
        key: Int[Tensor, "#b S"] | None = None,
    ) -> dict[str, Any]:
        """What weighs queries and keys at these positions, by default the first."""
        how = {"scale": self.scale, "soft_cap": self.soft_cap, "exclude_self": self.shared_qk}
        of = self.position
        added = self.added
        dtype = q.dtype
        biased = isinstance(of, BiasPosition)
        if not biased and added is None:
            return how
        of = as_now(of) if biased else of
        first = upto(q.shape[2], q)[None]
        i, j = (first if at is None else at for at in (query, key))

        def bias(rows: slice, cols: slice) -> Float[Tensor, "b h t s"]:
            given = [] if added is None else [added[..., rows, cols].to(dtype)]
            return sum(given, of.bias(i[:, rows], j[:, cols], dtype)) if biased else given[0]

        return how | {"bias": bias}
