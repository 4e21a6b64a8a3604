"""Factorized Random Synthesizer (Tay et al. 2020, arXiv 2005.00743): input-free logits of low rank.

    y = softmax(R_1 R_2^T) V,   R_1, R_2 [T M] per head, cut out of [max_len M], M = `rank` (the paper's 8)

Cost: T^2 (M + V) per head: the factors save parameters (2 max_len M instead of max_len^2), not the softmax. A public
code labels both factors with the key axis, so that all its rows are equal; here R_1 belongs to the query.
"""

from regard.core import Capabilities, Mixer, No
from regard.functional.shared.implementation import Impl, check_impl
from regard.nn.logits import FactorizedRandomLogits
from regard.nn.synthesis import Synthesis


class SynthesizerFactorizedRandom(Mixer):
    name = "synthesizer_factorized_random"
    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("its weights are made for positions of one sequence"),
        streaming="exact",
        attention_map=True,
        any_length=No("its factors have one row for each of max_len positions"),
        positions=frozenset({"absolute"}),
        time="T^2 H M + T^2 H V",
        memory="T D",
        state="T D",
    )
    variants = {"rank_2": {"rank": 2}}

    def __init__(
        self, dim: int, *, num_heads: int, max_len: int, rank: int = 8, impl: Impl = "auto"
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl)
        self.num_heads = num_heads
        logits = FactorizedRandomLogits(num_heads, max_len, rank=rank)
        self.synthesis = Synthesis(dim, num_heads, max_len, logits, impl)

    def mix(self, x, context, mask):
        return self.synthesis.mix(x, mask)

    def _initial_state(self, batch_size, max_len, context, valid):
        return self.synthesis.initial_state(batch_size, max_len)

    def _extend(self, x, state, valid, donate):
        return self.synthesis.extend(x, state, valid, donate)

    def _observe(self, x, context, mask):
        return self.synthesis.observe(x, mask)
