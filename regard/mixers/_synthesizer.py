"""Base class of the Synthesizers: values alone are mixed, by the softmax of logits that no key has a part in."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.core import No
from regard.functional.rows import Impl, check_impl
from regard.functional.synthesizer import Logits, synthesizer_attention, synthesizer_weights
from regard.mixers._cached import ValuesMixer
from regard.mixers._capabilities import ALL
from regard.nn.heads import Values


class SynthesizerMixer(ValuesMixer):
    """y = concat_h( softmax(B_h) v_h ) W_out; a mechanism sets `logits`, which makes B (`regard.nn.logits`)."""

    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    capabilities = replace(
        ALL,
        cross=No("its weights are made for positions of one sequence"),
        time="T^2 H V",
    )
    logits: Callable[..., Logits]

    def __init__(self, dim: int, *, num_heads: int, max_len: int | None, impl: Impl):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, "synthesizer")
        self.num_heads = num_heads
        self.values = Values(dim, num_heads)

    def _split(self, x, context, at=None):
        v = self.values.split(x)
        return x, v[..., :0], v

    def _logits(self, q: Any, k: Tensor, at: Tensor | None = None) -> Logits:
        """B of tokens at these positions (None: the first)."""
        return self.logits(q, at)

    def _attend(self, q, k, v, mask, query=None, key=None):
        T = k.shape[2] if query is None else query.shape[1]
        logits = self._logits(q, k, query)
        return synthesizer_attention(logits, v, T=T, mask=mask, impl=self.impl)

    def _weights(self, q, k, mask):
        B, H, T, _ = k.shape
        weights = synthesizer_weights(self._logits(q, k), T, T, mask=mask, device=k.device)
        return weights.to(k.dtype).expand(B, H, -1, -1)
