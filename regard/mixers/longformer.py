"""Longformer: a sliding window and global tokens with projections of their own (Beltagy et al. 2020, arXiv 2004.05150).

    token i              softmax over { j : |i - j| <= w dilation } and all global tokens, with Q_s, K_s, V_s
    global token i       softmax over all tokens, with Q_g, K_g, V_g; it replaces the row

`window_size` = w counts one side, as in the paper's code (its text counts both). `dilation` may differ by head. Q_g, K_g
and V_g start as copies of Q_s, K_s and V_s. When causal, a global token sees, and is seen by, what the order allows.

Cost: T (w + G) (K + V) per head where `max_global` = G promises that no row has more global tokens; without the
promise T^2 where global tokens are given. State: the last w dilation keys and values. The output projection has no bias.
"""

from collections.abc import Sequence

import torch
from torch import nn

from regard.core import Capabilities, Mask, Mixer, No, Observation, OptionError, ShapeError
from regard.core.shapes import check_positive
from regard.functional.softmax.dense import softmax_attention, softmax_weights
from regard.functional.sparse.attention import (
    global_places,
    pattern_attention,
    pattern_weights,
    replace_rows,
)
from regard.functional.sparse.cache import empty_state, extend_pattern
from regard.functional.sparse.patterns import PerHead, Window
from regard.nn.heads import Heads


class Longformer(Mixer):
    name = "longformer"
    family = "banded"
    paper = "Beltagy et al. 2020, arXiv 2004.05150"
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
        "dilated": {"window_size": 2, "dilation": (1, 3, 2)},
        "few_global": {"window_size": 2, "max_global": 13},
    }
    limits = {"softmax": ({"window_size": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        window_size: int = 128,
        dilation: int | Sequence[int] = 1,
        max_global: int | None = None,
    ):
        super().__init__(dim)
        check_positive(num_heads=num_heads, window_size=window_size)
        if max_global is not None:
            check_positive(max_global=max_global)
        steps = [dilation] * num_heads if isinstance(dilation, int) else list(dilation)
        if len(steps) != num_heads:
            raise OptionError(
                f"longformer: {len(steps)} dilations for {num_heads} heads: give one for each"
            )
        self.num_heads, self.max_global = num_heads, max_global
        self.heads = Heads(dim, num_heads)
        self.global_heads = nn.ModuleDict(
            {name: nn.Linear(dim, dim, bias=False) for name in ("query", "key", "value")}
        )
        self.global_heads.load_state_dict(
            {
                key: weight
                for key, weight in self.heads.state_dict().items()
                if not key.startswith("out")
            }
        )
        self.pattern = PerHead(tuple(Window(window_size, window_size, step) for step in steps))

    def mix(self, x, context, mask):
        self._check_global(mask)
        q, k, v = self.heads.split(x)
        y = pattern_attention(q, k, v, pattern=self.pattern, mask=mask, max_global=self.max_global)
        if mask.global_tokens is not None:
            q, k, v = self._global(x)
            if self.max_global is None:
                rows = softmax_attention(q, k, v, mask=mask)
                y = torch.where(mask.global_tokens[:, None, :, None], rows, y)
            else:
                at, present = global_places(mask.global_tokens, self.max_global)
                y = replace_rows(y, q, k, v, mask, at, present)
        return self.heads.merge(y)

    def _check_global(self, mask: Mask) -> None:
        """A row with more global tokens than promised is refused; a compiled graph cannot look at the values."""
        marks = mask.global_tokens
        if self.max_global is None or marks is None or marks.is_meta:
            return
        if torch.compiler.is_compiling():
            return
        most = int(marks.sum(1).max())
        if most > self.max_global:
            raise ShapeError(
                f"longformer: mask.global_tokens marks {most} tokens of a row, max_global is {self.max_global}. "
                "Raise max_global, or leave it out for any number."
            )

    def _global(self, x):
        return [
            linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in self.global_heads.values()
        ]

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
        mixed = weights @ v
        if mask.global_tokens is not None:
            is_global = mask.global_tokens[:, None, :, None]
            global_q, global_k, global_v = self._global(x)
            rows = softmax_weights(global_q, global_k, mask=mask)
            weights, mixed = (
                torch.where(is_global, rows, weights),
                torch.where(is_global, rows @ global_v, mixed),
            )
        return Observation(q, k, v, weights, mixed)
