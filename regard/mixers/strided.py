"""Strided attention: Sparse Transformer (Child et al. 2019, arXiv 1904.10509) and the dilated window.

    strided   A1_i = { j : |i - j| <= w },  w = l                A2_i = { j : (i - j) mod l = 0 }
    fixed     A1_i = { j : floor(j / l) = floor(i / l) }         A2_i = { j : j mod l >= l - c }
    dilated   A_i  = { i + l d : -w <= d <= w }                                          (l the stride, j <= i when causal)

One head takes A1 and A2 together, each key once; with `merged=False` heads alternate between them. The paper is causal;
without `causal` the sets are taken to both sides. The paper has l + 1 keys in the strided A1, its code l: the union is
the same, and `window_size` sets it for separate heads.

Cost: T (w + T / l) (K + V) per head. The default l = sqrt(max_len / 2) makes that smallest, T^1.5 at max_len (128
without max_len). State: every key for "strided", whose columns all come round again, and for "fixed"; the last w l for
"dilated". The output projection has no bias.

Args:
    kind: published pattern of pairs
    stride: tokens from one seen key to the next
    window_size: tokens seen on each side of a query
    summary_width: last tokens of a block that later blocks see
    merged: True: every head sees both sets of keys; False: heads alternate between them
"""

from math import isqrt
from typing import Literal

from regard.core import No, OptionError
from regard.functional.patterns import (
    Block,
    Pattern,
    PerHead,
    Strided as Stride,
    Summary,
    Union,
    Window,
)
from regard.functional.rows import Impl
from regard.mixers._base import Options
from regard.mixers._patterned import PatternMixer


class Strided(PatternMixer):
    __doc__ = __doc__
    name = "strided"
    paper = "Child et al. 2019, arXiv 1904.10509"
    capabilities = PatternMixer.capabilities.but(
        time="T W H K + T^2 H K / W",
        state="T H K",
        exchange=No("its far keys come round in every part"),
    )
    variants = {
        "small": {"stride": 4},
        "separate": {"stride": 2, "window_size": 3, "merged": False},
        "fixed": {"kind": "fixed", "stride": 4, "summary_width": 2},
        "fixed_separate": {"kind": "fixed", "stride": 3, "summary_width": 2, "merged": False},
        "dilated": {"kind": "dilated", "stride": 3, "window_size": 2},
        "grouped": {"stride": 3, "num_kv_heads": 1, "position": "rotary"},
    }
    limits = {"softmax": ({"stride": 1}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        kind: Literal["strided", "fixed", "dilated"] = "strided",
        stride: int | None = None,
        window_size: int | None = None,
        summary_width: int | None = None,
        merged: bool = True,
        max_len: int | None = None,
        num_kv_heads: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(
            dim, num_heads, num_kv_heads, impl, position, position_options, alike=merged
        )
        if window_size is not None and kind == "fixed":
            raise OptionError(
                "strided: window_size has no meaning for kind 'fixed', whose blocks are `stride` long"
            )
        if summary_width is not None and kind != "fixed":
            raise OptionError(f"strided: summary_width belongs to kind 'fixed', not to {kind!r}")
        if kind == "dilated" and not merged:
            raise OptionError("strided: merged=False needs two sets, and kind 'dilated' has one")
        if stride is None:
            stride = 128 if max_len is None else max(1, isqrt(max_len // 2))
        w = window_size or stride
        c = summary_width or max(1, stride // 8)
        if kind == "dilated":
            self.pattern = Window(w, w, stride)
            self.declare(time="T W H K", state="W H K", exchange="halo")
            return
        sets: tuple[Pattern, Pattern] = Window(w, w), Stride(stride)
        if kind == "fixed":
            sets = Block(stride), Summary(stride, c)
        self.pattern = (
            Union(sets) if merged else PerHead(tuple(sets[h % 2] for h in range(num_heads)))
        )
