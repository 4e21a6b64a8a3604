"""Random Synthesizer (Tay et al. 2020, arXiv 2005.00743): weights are parameters, the same for every input.

    y = softmax(R) V,   R [T T] per head, cut out of [max_len max_len]

Cost: T^2 V per head, no queries, no keys; max_len^2 parameters per head. `trainable=False` keeps R at its random start
(the paper's fixed variant). The paper does not state how R starts: Glorot, as its code's framework does.
"""

from regard.core import Capabilities, Mixer, No
from regard.functional.shared.implementation import Impl, check_impl
from regard.nn.logits import RandomLogits
from regard.nn.synthesis import Synthesis


class SynthesizerRandom(Mixer):
    name = "synthesizer_random"
    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("its weights are made for positions of one sequence"),
        streaming="exact",
        attention_map=True,
        any_length=No("its weights are a table of max_len by max_len positions"),
        positions=frozenset({"absolute"}),
        time="T^2 H V",
        memory="T D",
        state="T D",
    )
    variants = {"fixed": {"trainable": False}}

    def __init__(
        self, dim: int, *, num_heads: int, max_len: int, trainable: bool = True, impl: Impl = "auto"
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl)
        self.num_heads = num_heads
        logits = RandomLogits(num_heads, max_len, trainable=trainable)
        self.synthesis = Synthesis(dim, num_heads, max_len, logits, impl)

    def mix(self, x, context, mask):
        return self.synthesis.mix(x, mask)

    def _initial_state(self, batch_size, max_len, context, valid):
        return self.synthesis.initial_state(batch_size, max_len)

    def _extend(self, x, state, valid, donate):
        return self.synthesis.extend(x, state, valid, donate)

    def _observe(self, x, context, mask):
        return self.synthesis.observe(x, mask)
