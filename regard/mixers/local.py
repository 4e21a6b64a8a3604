"""Local attention: a sliding window (Parmar et al. 2018, arXiv 1802.05751; Beltagy et al. 2020, arXiv 2004.05150).

    y_i = softmax over A_i,   A_i = { j : |i - j| <= w dilation, (i - j) mod dilation = 0 },   j <= i when causal

`window_size` = w counts ONE side: 2 w + 1 keys, the query itself among them, and w + 1 when causal. (Longformer's
paper counts both sides, its code one.) L layers see L w dilation tokens to each side.

Cost: T (2 w + 1) (K + V) per head. Where global tokens are given, T^2: any token may be one. State: the last
w dilation keys and values. The output projection has no bias.
"""

from regard.core import Capabilities, Mixer, No, Observation
from regard.core.shapes import check_positive
from regard.functional.pattern import pattern_attention, pattern_weights
from regard.functional.pattern_cache import empty_state, extend_pattern
from regard.functional.patterns import Window
from regard.nn.heads import Heads


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
        positions=frozenset({"absolute"}),
        time="T W H K",
        memory="T D",
        state="W H K",
    )
    variants = {
        "narrow": {"window_size": 3},
        "dilated": {"window_size": 2, "dilation": 3},
    }
    limits = {"softmax": ({"window_size": 64}, {})}

    def __init__(self, dim: int, *, num_heads: int, window_size: int = 128, dilation: int = 1):
        super().__init__(dim)
        check_positive(window_size=window_size)
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        self.pattern = Window(window_size, window_size, dilation)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x)
        return self.heads.merge(pattern_attention(q, k, v, pattern=self.pattern, mask=mask))

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        return empty_state(
            weight, batch_size, self.num_heads, self.heads.head_dim, self.pattern, max_len
        )

    def _extend(self, x, state, valid, donate):
        q, k, v = self.heads.split(x)
        mixed, state = extend_pattern(
            q, k, v, state, pattern=self.pattern, valid=valid, donate=donate
        )
        return self.heads.merge(mixed), state

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x)
        weights = pattern_weights(q, k, pattern=self.pattern, mask=mask)
        return Observation(q, k, v, weights, weights @ v)
