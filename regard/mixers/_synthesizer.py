"""Base class of the Synthesizers: values alone are mixed, by the softmax of logits that no key has a part in."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import Mixer, No, Observation
from regard.core.states import Streamed, as_state
from regard.functional.cache import columns, put
from regard.functional.rows import Impl, check_impl
from regard.functional.synthesizer import synthesizer_attention, synthesizer_weights
from regard.mixers._capabilities import ALL
from regard.nn.heads import Values


@as_state
class State(Streamed):
    v: Float[Tensor, "B H C V"]
    length: Int[Tensor, "B"]


class Synthesis(nn.Module):
    """What makes the logits, and the projections of the values."""

    def __init__(self, dim: int, num_heads: int, logits: nn.Module):
        super().__init__()
        self.logits = logits
        self.values = Values(dim, num_heads)


class SynthesizerMixer(Mixer):
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

    def _initial_state(self, batch_size, max_len, context, valid):
        values = self.synthesis.values
        weight = values.value.weight
        v = weight.new_zeros(batch_size, self.num_heads, max_len or 0, values.head_dim)
        return State(v, torch.zeros(batch_size, dtype=torch.long, device=weight.device))

    def _extend(self, x, state, valid, donate):
        T, at = x.shape[1], columns(state, valid, x.shape[1], state.v, donate)
        values = self.synthesis.values
        v = put(state.v, values.split(x), at, donate)
        assert self.max_len is not None
        at = at._replace(seen=min(at.seen, self.max_len))  # a store may have more columns
        logits, seen = self.synthesis.logits(x, at.query.clamp_min(0)), v[:, :, : at.seen]
        mixed = synthesizer_attention(logits, seen, T=T, mask=at.mask, impl=self.impl)
        return values.merge(mixed), State(v, at.length)

    def _observe(self, x, context, mask):
        T, v = x.shape[1], self.synthesis.values.split(x)
        weights = synthesizer_weights(self.synthesis.logits(x), T, T, mask=mask, device=x.device)
        weights = weights.to(v.dtype).expand(*v.shape[:2], -1, -1)
        return Observation(v=v, weights=weights, heads=weights @ v)
