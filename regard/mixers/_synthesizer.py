"""Base class of the Synthesizers: values alone are mixed, by the softmax of logits that no key has a part in."""

from torch import nn

from regard.core import Capabilities, Mixer, No
from regard.functional.choice import Impl, check_impl
from regard.nn.synthesis import Synthesis


class SynthesizerMixer(Mixer):
    """y = concat_h( softmax(B_h) v_h ) W_out; a mechanism sets what makes the logits B (`regard.nn.logits`)."""

    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("its weights are made for positions of one sequence"),
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute"}),
        time="T^2 H V",
        memory="T D",
        state="T D",
    )

    def __init__(self, dim: int, *, num_heads: int, max_len: int, impl: Impl):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, "synthesizer")
        self.num_heads = num_heads

    def _set_logits(self, logits: nn.Module) -> None:
        assert self.max_len is not None
        self.synthesis = Synthesis(self.dim, self.num_heads, self.max_len, logits, self.impl)

    def mix(self, x, context, mask):
        return self.synthesis.mix(x, mask)

    def _initial_state(self, batch_size, max_len, context, valid):
        return self.synthesis.initial_state(batch_size, max_len)

    def _extend(self, x, state, valid, donate):
        return self.synthesis.extend(x, state, valid, donate)

    def _observe(self, x, context, mask):
        return self.synthesis.observe(x, mask)
