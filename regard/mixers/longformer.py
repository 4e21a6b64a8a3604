"""Longformer: a sliding window and global tokens with projections of their own (Beltagy et al. 2020, arXiv 2004.05150).

    token i              softmax over { j : |i - j| <= w dilation } and all global tokens, with Q_s, K_s, V_s
    global token i       softmax over all tokens, with Q_g, K_g, V_g; it replaces the row

`window_size` = w counts one side, as in the paper's code (its text counts both). `dilation` may differ by head. Q_g, K_g
and V_g start as copies of Q_s, K_s and V_s. When causal, a global token sees, and is seen by, what the order allows.

Cost: T (w + G) (K + V) per head where `max_global` = G promises that no row has more global tokens; without the
promise T^2 where global tokens are given. `max_global=0` leaves Q_g, K_g and V_g out. State: the last w dilation keys and values. The output projection has no bias.

Args:
    window_size: tokens seen on each side of a query
    dilation: tokens from one key of a window to the next
    max_global: largest number of global tokens in a row; None: no limit
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from regard.core import Count, No, OptionError, is_mapped, require_all
from regard.functional.global_rows import global_places, replace_rows
from regard.functional.patterns import PerHead, Window
from regard.functional.rows import Impl
from regard.functional.softmax import softmax_attention
from regard.mixers._base import HeadsMixer, Options
from regard.mixers._patterned import PatternMixer


class Longformer(PatternMixer):
    __doc__ = __doc__
    name = "longformer"
    paper = "Beltagy et al. 2020, arXiv 2004.05150"
    capabilities = PatternMixer.capabilities.but(exchange="halo")
    variants = {
        "narrow": {"window_size": 3},
        "dilated": {"window_size": 2, "dilation": (1, 3, 2)},
        "few_global": {"window_size": 2, "max_global": 13},
        "no_global": {"window_size": 2, "max_global": 0},
        "grouped": {"window_size": 2, "num_kv_heads": 1, "position": "rotary"},
    }
    limits = {"softmax": ({"window_size": 64}, {})}
    beside_heads: str | None = "its global tokens"

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        window_size: int = 128,
        dilation: int | Sequence[int] = 1,
        max_global: Count | None = None,
        num_kv_heads: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        steps = [dilation] * num_heads if isinstance(dilation, int) else list(dilation)
        if len(steps) != num_heads:
            raise OptionError(
                f"longformer: {len(steps)} dilations for {num_heads} heads: give one for each"
            )
        alike = len(set(steps)) == 1
        super().__init__(
            dim, num_heads, num_kv_heads, impl, position, position_options, alike=alike
        )
        self.max_global = max_global
        self.global_heads: Any = None
        if max_global == 0:
            self.declare(global_tokens=No("max_global=0 leaves out their projections"))
            self.beside_heads = None
        else:
            self.global_heads = deepcopy(self.heads)
            self.global_heads.out = nn.Identity()
        windows = tuple(Window(window_size, window_size, step) for step in steps)
        self.pattern = windows[0] if alike else PerHead(windows)

    def _request(self, T, mask):
        """Under vmap nobody can count the global tokens: there may be as many as there are tokens."""
        marks, most = mask.global_tokens, self.max_global
        if marks is None or most is None:
            return self.pattern, mask, most
        said = f"longformer: mask.global_tokens marks more tokens of a row than max_global={most}. Raise it, or leave it out for any number."
        require_all(marks.sum(1) <= most, said)
        return self.pattern, mask, None if is_mapped(marks) else most

    def _global_rows(self, y, x, mask):
        q, k, v = self.global_heads.split(x)
        marks = mask.global_tokens
        if self.max_global is None or is_mapped(marks):
            rows = softmax_attention(q, k, v, mask=mask, impl=self.impl)
            return torch.where(marks[:, None, :, None], rows, y)
        at, present = global_places(marks, self.max_global)
        return replace_rows(y, q, k, v, mask, at, present)

    _observe = HeadsMixer._observe
