"""Local attention: a sliding window (Parmar et al. 2018, arXiv 1802.05751; Beltagy et al. 2020, arXiv 2004.05150).

    y_i = softmax over A_i,   A_i = { j : |i - j| <= w dilation, (i - j) mod dilation = 0 },   j <= i when causal

`window_size` = w counts ONE side: 2 w + 1 keys, the query itself among them, and w + 1 when causal. (Longformer's
paper counts both sides, its code one.) L layers see L w dilation tokens to each side.

Cost: T (2 w + 1) (K + V) per head. Where global tokens are given, T^2: any token may be one. State: the last
w dilation keys and values. The output projection has no bias. `position="rotary"` (arXiv 2104.09864) turns queries and
keys by their place in the whole sequence; `position_options` are the kind's own.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core import Capabilities, Mixer, No, Observation
from regard.core.shapes import check_positive
from regard.functional.shared.cache import place
from regard.functional.shared.implementation import Impl, check_impl
from regard.functional.sparse.attention import pattern_attention, pattern_weights
from regard.functional.sparse.cache import empty_state, extend_pattern
from regard.functional.sparse.patterns import Window
from regard.nn.heads import Heads
from regard.positions.inside import inside
from regard.positions.relative import Rotary


class Local(Mixer):
    name = "local"
    family = "banded"
    paper = "Parmar et al. 2018, arXiv 1802.05751"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("a window needs queries and keys on one axis"),
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute", "rotary"}),
        time="T W H K",
        memory="T D",
        state="W H K",
    )
    variants = {
        "narrow": {"window_size": 3},
        "dilated": {"window_size": 2, "dilation": 3},
        "rotary": {"window_size": 3, "position": "rotary"},
    }
    limits = {"softmax": ({"window_size": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        window_size: int = 128,
        dilation: int = 1,
        position: str | None = None,
        position_options: Mapping[str, Any] | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, "pattern")
        check_positive(window_size=window_size)
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        self.pattern = Window(window_size, window_size, dilation)
        self.position = inside(self, num_heads, position, position_options)

    def _split(
        self, x: Tensor, position: Int[Tensor, "b T"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of tokens at these positions; without any: 0, 1, 2 .."""
        q, k, v = self.heads.split(x)
        if not isinstance(self.position, Rotary):
            return q, k, v
        if position is None:
            position = torch.arange(x.shape[1], device=x.device)
        return self.position.rotate(q, position), self.position.rotate(k, position), v

    def mix(self, x, context, mask):
        q, k, v = self._split(x)
        return self.heads.merge(
            pattern_attention(q, k, v, pattern=self.pattern, mask=mask, impl=self.impl)
        )

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        return empty_state(
            weight, batch_size, self.num_heads, self.heads.head_dim, self.pattern, max_len
        )

    def _extend(self, x, state, valid, donate):
        q, k, v = self._split(x, place(state.length, valid, x.shape[1]))
        mixed, state = extend_pattern(
            q, k, v, state, pattern=self.pattern, valid=valid, donate=donate
        )
        return self.heads.merge(mixed), state

    def _observe(self, x, context, mask):
        q, k, v = self._split(x)
        weights = pattern_weights(q, k, pattern=self.pattern, mask=mask)
        return Observation(q, k, v, weights, weights @ v)
