"""Factorized Random Synthesizer (Tay et al. 2020, arXiv 2005.00743): input-free logits of low rank.

    y = softmax(R_1 R_2^T) V,   R_1, R_2 [T M] per head, cut out of [max_len M], M = `rank` (the paper's 8)

Cost: T^2 (M + V) per head: the factors save parameters (2 max_len M instead of max_len^2), not the softmax. A public
code labels both factors with the key axis, so that all its rows are equal; here R_1 belongs to the query.

Args:
    rank: columns of each factor of the logits
"""

from regard.core import No
from regard.functional.rows import Impl
from regard.mixers._synthesizer import SynthesizerMixer
from regard.nn.logits import FactorizedRandomLogits


class SynthesizerFactorizedRandom(SynthesizerMixer):
    __doc__ = __doc__
    name = "synthesizer_factorized_random"
    capabilities = SynthesizerMixer.capabilities.but(
        any_length=No("its factors have one row for each of max_len positions"),
        time="T^2 H M + T^2 H V",
    )
    variants = {"rank_2": {"rank": 2}}

    def __init__(
        self, dim: int, *, num_heads: int, max_len: int, rank: int = 8, impl: Impl = "auto"
    ):
        super().__init__(dim, num_heads, max_len, impl)
        self.logits = FactorizedRandomLogits(num_heads, max_len, rank=rank)
