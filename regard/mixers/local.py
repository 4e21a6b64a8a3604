"""Local attention: a sliding window (Parmar et al. 2018, arXiv 1802.05751; Beltagy et al. 2020, arXiv 2004.05150).

    y_i = softmax over A_i,   A_i = { j : |i - j| <= w dilation, (i - j) mod dilation = 0 },   j <= i when causal

`window_size` = w counts ONE side: 2 w + 1 keys, the query itself among them, and w + 1 when causal. (Longformer's
paper counts both sides, its code one.) L layers see L w dilation tokens to each side.

Cost: T (2 w + 1) (K + V) per head. Where global tokens are given, T^2: any token may be one. State: the last
w dilation keys and values. The output projection has no bias. `position="rotary"` (arXiv 2104.09864) turns queries and
keys by their position in the whole sequence; `position_options` are the kind's own. Fewer key/value heads (`num_kv_heads`): arXiv 2305.13245. `sinks` and the other options
of today's models are those of `softmax`; GPT-OSS and Gemma count the query in their window, which is `window_size` + 1.

Args:
    window_size: tokens seen on each side of a query
    dilation: tokens from one key of a window to the next
"""

from regard.core import Above0
from regard.functional.rows import Impl
from regard.functional.window import State, extend, window_attention
from regard.mixers._base import HeadsMixer, Options
from regard.mixers._patterned import PatternMixer
from regard.nn.heads import HeadBias, HeadNorm


class Local(HeadsMixer):
    __doc__ = __doc__
    name = "local"
    family = "banded"
    paper = "Parmar et al. 2018, arXiv 1802.05751"
    operations = ("window",)
    capabilities = PatternMixer.capabilities.but(exchange="halo")
    variants = {
        "narrow": {"window_size": 3},
        "dilated": {"window_size": 2, "dilation": 3},
        "grouped": {"window_size": 3, "num_kv_heads": 1, "position": "rotary"},
        "modern": {
            "window_size": 3,
            "position": "rotary",
            "head_dim": 6,
            "bias": "qkv",
            "qk_norm": True,
            "soft_cap": 0.5,
            "gate": True,
            "sinks": True,
        },
    }
    limits = {"softmax": ({"window_size": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        window_size: int = 128,
        dilation: int = 1,
        head_dim: int | None = None,
        bias: HeadBias = False,
        qk_norm: HeadNorm = False,
        soft_cap: Above0 | None = None,
        gate: bool = False,
        sinks: bool = False,
        position: str | None = None,
        position_options: Options | None = None,
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
            repeat=False,
            alike=True,
        )
        self.window_size = window_size
        self.reach = window_size * dilation
        self._how: Options = {"window": window_size, "dilation": dilation, "soft_cap": soft_cap}

    def mix(self, x, context, mask):
        how = {"sinks": self.sinks, "impl": self.impl, **self._how}
        return self.heads.merge(window_attention(*self.heads.split(x), mask=mask, **how), x)

    def _start(self, length, max_len):
        store = self.heads.zeros(len(length), self.reach)
        return State(store, store.clone(), length)

    def _step(self, x, state, valid, donate):
        q, k, v = self.heads.split(x, None, state.length)
        return extend(q, k, v, state, valid=valid, sinks=self.sinks, impl=self.impl, **self._how)
