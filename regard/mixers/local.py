"""Local attention: a sliding window (Parmar et al. 2018, arXiv 1802.05751; Beltagy et al. 2020, arXiv 2004.05150).

    y_i = softmax over A_i,   A_i = { j : |i - j| <= w dilation, (i - j) mod dilation = 0 },   j <= i when causal

`window_size` = w counts ONE side: 2 w + 1 keys, the query itself among them, and w + 1 when causal. (Longformer's
paper counts both sides, its code one.) L layers see L w dilation tokens to each side.

Cost: T (2 w + 1) (K + V) per head. Where global tokens are given, T^2: any token may be one. State: the last
w dilation keys and values. The output projection has no bias. `position="rotary"` (arXiv 2104.09864) turns queries and
keys by their place in the whole sequence; `position_options` are the kind's own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from regard.functional.shared.cache import place
from regard.functional.shared.implementation import Impl
from regard.functional.sparse.patterns import Window
from regard.mixers._patterned import PatternMixer
from regard.positions.inside import inside
from regard.positions.relative import Rotary


class Local(PatternMixer):
    name = "local"
    paper = "Parmar et al. 2018, arXiv 1802.05751"
    capabilities = replace(PatternMixer.capabilities, positions=frozenset({"absolute", "rotary"}))
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
        super().__init__(dim, num_heads=num_heads, impl=impl)
        self.pattern = Window(window_size, window_size, dilation)
        self.position = inside(self, num_heads, position, position_options)

    def _split(self, x, state=None, valid=None):
        q, k, v = self.heads.split(x)
        if not isinstance(self.position, Rotary):
            return q, k, v
        T = x.shape[1]
        position = (
            torch.arange(T, device=x.device) if state is None else place(state.length, valid, T)
        )
        return self.position.rotate(q, position), self.position.rotate(k, position), v
