"""A pattern for each head: no need to choose between near and far (Beltagy et al. 2020, arXiv 2004.05150).

    y = concat_h( softmax over A^h_i ) W_out

`patterns` are values of `regard.functional.patterns`, one for each head, in order, or one for all: Window, Block,
Strided, Summary, First, All, and unions with `|`. By default heads take turns: a window, a dilated window, a window with the first token
seen by all. Heads of one pattern run together.

Cost: the sum of the patterns' pairs. State: the longest reach of any head, for all of them; every key where one head's
pattern has no bound. The output projection has no bias.

Args:
    patterns: pattern of each head; None: the mechanism's own choice
"""

from collections.abc import Sequence

from regard.core import OptionError
from regard.functional.patterns import (
    All,
    Block,
    First,
    Pattern,
    PerHead,
    Scattered,
    Strided,
    Summary,
    Window,
)
from regard.functional.rows import Impl
from regard.mixers._base import Options
from regard.mixers._patterned import PatternMixer

DEFAULT = (Window(64, 64), Window(64, 64, 8), Window(64, 64) | First(1))


class HeadMix(PatternMixer):
    __doc__ = __doc__
    name = "head_mix"
    paper = "Beltagy et al. 2020, arXiv 2004.05150"
    variants = {
        "small": {"patterns": (Window(2, 2), Window(1, 1, 3), Window(0, 0) | First(2))},
        "unbounded": {
            "patterns": (Window(3, 1), Block(4) | Summary(4, 1), Window(2, 2) | Strided(5))
        },
        "permuted": {"patterns": (Block(4, 1), All(), Block(4, 1))},
        "grouped": {
            "patterns": (Window(2, 2), Block(4), Window(0, 0) | First(2)),
            "num_kv_heads": 1,
            "position": "rotary",
        },
    }
    limits = {"softmax": ({"patterns": (Window(64, 64), All(), Block(64))}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        patterns: Pattern | Sequence[Pattern] | None = None,
        num_kv_heads: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, position, position_options)
        if isinstance(patterns, PerHead):
            patterns = patterns.heads
        elif isinstance(patterns, Pattern):
            patterns = [patterns] * num_heads
        if patterns is None:
            patterns = [DEFAULT[h % len(DEFAULT)] for h in range(num_heads)]
        if len(patterns) != num_heads:
            raise OptionError(
                f"head_mix: {len(patterns)} patterns for {num_heads} heads: give one for each"
            )
        for pattern in patterns:
            if isinstance(pattern, PerHead):
                raise OptionError(
                    f"head_mix: {pattern!r} is not a pattern of one head: Window(64, 64) | First(1)?"
                )
            if any(isinstance(term, Scattered) for term in pattern.terms):
                raise OptionError(
                    "head_mix: a table of random blocks belongs to one length, and is saved with the mixer that has "
                    "it: bigbird"
                )
        self.pattern = PerHead(tuple(patterns))
        if self.pattern.reach is None:
            self.declare(time="T^2 H K", state="T H K")
        elif self.reach is not None:
            self.declare(exchange="halo")
