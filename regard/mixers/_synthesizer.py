"""Base class of the Synthesizers: values alone are mixed, by the softmax of logits that no key has a part in."""

from dataclasses import replace

from torch import nn

from regard.core import No, Observation
from regard.functional.rows import Impl, check_impl
from regard.functional.synthesizer import synthesizer_attention, synthesizer_weights
from regard.mixers._cached import CachedMixer
from regard.mixers._capabilities import ALL
from regard.nn.heads import Values


class Synthesis(nn.Module):
    """What makes the logits, and the projections of the values."""

    def __init__(self, dim: int, num_heads: int, logits: nn.Module):
        super().__init__()
        self.logits = logits
        self.values = Values(dim, num_heads)


class SynthesizerMixer(CachedMixer):
    """y = concat_h( softmax(B_h) v_h ) W_out; a mechanism sets what makes the logits B (`regard.nn.logits`)."""

    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    capabilities = replace(
        ALL,
        cross=No("its weights are made for positions of one sequence"),
        time="T^2 H V",
    )

    def __init__(self, dim: int, *, num_heads: int, max_len: int, impl: Impl):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, "synthesizer")
        self.num_heads = num_heads

    def _set_logits(self, logits: nn.Module) -> None:
        self.synthesis = Synthesis(self.dim, self.num_heads, logits)

    def mix(self, x, context, mask):
        logits, values = self.synthesis.logits(x), self.synthesis.values
        v = values.split(x)
        mixed = synthesizer_attention(logits, v, T=x.shape[1], mask=mask, impl=self.impl)
        return values.merge(mixed)

    def _split(self, x, context, at):
        v = self.synthesis.values.split(x)
        return x, v[..., :0], v

    def _attend(self, x, k, v, mask, query, key):
        logits = self.synthesis.logits(x, query.clamp_min(0))
        return synthesizer_attention(logits, v, T=x.shape[1], mask=mask, impl=self.impl)

    def _merge(self, x, mixed):
        return self.synthesis.values.merge(mixed)

    def _observe(self, x, context, mask):
        T, v = x.shape[1], self.synthesis.values.split(x)
        weights = synthesizer_weights(self.synthesis.logits(x), T, T, mask=mask, device=x.device)
        weights = weights.to(v.dtype).expand(*v.shape[:2], -1, -1)
        return Observation(v=v, weights=weights, heads=weights @ v)
