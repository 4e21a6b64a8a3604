"""Fixed encoder patterns beside learned heads (Raganato, Scherrer, Tiedemann 2020, arXiv 2002.10260).

    y = concat_h( P_h v_h ) W_out      P_h from positions alone for one head per pattern, softmax(q k^T) for the others
    current j = i; previous; next; left: (j + 1)^3 for j <= i - 2; right: (n - j)^3 for j >= i + 2; end: (j + 1)^3;
    start: (n - j)^3; last: j = n - 1        rows divided by their sum, n the number of tokens of the row

`patterns` names those of the first heads. By default the paper's seven, one learned head being kept in any case.
Fixed heads have no queries and keys. Cost: T^2 V per head; no [T T] is stored. Rows without such a token look at the
boundary token, which the paper leaves open. Restricted pairs are taken out before the division. Only current, previous
and left look back, so causal and streaming need `patterns` from these.

Args:
    patterns: pattern of each head; None: the mechanism's own choice
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from regard.core import Mask, No, OptionError, UnknownNameError
from regard.functional.fixed import CAUSAL_PATTERNS, PATTERNS, fixed_attention
from regard.functional.rows import Impl, upto
from regard.functional.softmax import softmax_attention
from regard.mixers._base import ALL
from regard.mixers._synthesizer import ValuesMixer
from regard.nn.heads import Values, split_heads
from regard.nn.starts import Glorot, glorot

SEVEN = ("current", "previous", "next", "left", "right", "end", "start")


class FixedPatterns(ValuesMixer):
    __doc__ = __doc__
    name = "fixed_patterns"
    family = "score-free"
    paper = "Raganato et al. 2020, arXiv 2002.10260"
    capabilities = ALL.but(
        causal=No("its patterns next, right, end, start and last look ahead"),
        global_tokens=No("its fixed heads weigh tokens by position alone"),
        cross=No("its patterns speak of positions in one sequence"),
        streaming=No("its patterns next, right, end, start and last look ahead"),
    )
    variants = {
        "next": {"patterns": ("next",)},
        "context": {"patterns": ("left", "right")},
        "ends": {"patterns": ("end", "start", "last")},
        "causal": {"patterns": ("left", "previous")},
        "no_learned_head": {"patterns": ("current", "left", "previous")},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        patterns: Sequence[str] | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, impl)
        self.patterns = tuple(SEVEN[: num_heads - 1] if patterns is None else patterns)
        for name in self.patterns:
            if name not in PATTERNS:
                raise UnknownNameError("fixed pattern", name, PATTERNS)
        if len(self.patterns) > num_heads:
            raise OptionError(
                f"fixed_patterns: {len(self.patterns)} patterns need as many heads, num_heads is {num_heads}"
            )
        self.values = Values(dim, num_heads)
        self.num_heads = num_heads
        self.num_learned = num_heads - len(self.patterns)
        self.query = self.key = None
        if self.num_learned:
            width = self.num_learned * self.values.head_dim
            self.query = Glorot(dim, width)
            self.key = Glorot(dim, width)
            glorot(self)
        if all(name in CAUSAL_PATTERNS for name in self.patterns):
            self.declare(causal=True, streaming="exact")

    def mix(self, x, context, mask):
        q, k, v = self._split(x, context)
        return self.values.merge(self._attend(q, k, v, mask))

    def _split(self, x, context, at=None):
        v = self.values.split(x)
        if self.query is None or self.key is None:
            return v[:, :0], v[:, :0], v
        sizes = self.num_learned, self.values.head_dim
        q, k = (split_heads(z, *sizes) for z in (self.query(x), self.key(x)))
        return q, k, v

    def _attend(self, q, k, v, mask, query=None, key=None):
        F, parts = len(self.patterns), []
        fixed_mask, learned_mask = _by_heads(mask, F)
        if F:
            if query is None:
                query = key = upto(q.shape[2], q)[None]
            n = key[:1, -1] + 1 if mask.valid is None else mask.valid.sum(1)
            fixed = v[:, :F], query, key, n
            parts.append(fixed_attention(self.patterns, *fixed, mask=fixed_mask, impl=self.impl))
        if self.num_learned:
            parts.append(softmax_attention(q, k, v[:, F:], mask=learned_mask, impl=self.impl))
        return torch.cat(parts, 1)


def _by_heads(mask: Mask, first: int) -> tuple[Mask, Mask]:
    """The mask of the first heads and of the others."""
    pairwise = mask.pairwise
    if pairwise is None or pairwise.shape[1] == 1:
        return mask, mask
    return replace(mask, pairwise=pairwise[:, :first]), replace(mask, pairwise=pairwise[:, first:])
