"""Random Synthesizer (Tay et al. 2020, arXiv 2005.00743): weights are parameters, the same for every input.

    y = softmax(R) V,   R [T T] per head, cut out of [max_len max_len]

Cost: T^2 V per head, no queries, no keys; max_len^2 parameters per head. `trainable=False` keeps R at its random start
(the paper's fixed variant). The paper does not state how R starts: Glorot, as its code's framework does.

Args:
    trainable: True: the logits are learned
"""

from regard.core import No
from regard.functional.rows import Impl
from regard.mixers._synthesizer import SynthesizerMixer
from regard.nn.logits import RandomLogits


class SynthesizerRandom(SynthesizerMixer):
    __doc__ = __doc__
    name = "synthesizer_random"
    capabilities = SynthesizerMixer.capabilities.but(
        any_length=No("its weights are a table of max_len by max_len positions")
    )
    variants = {"fixed": {"trainable": False}}

    def __init__(
        self, dim: int, *, num_heads: int, max_len: int, trainable: bool = True, impl: Impl = "auto"
    ):
        super().__init__(dim, num_heads, max_len, impl)
        self.logits = RandomLogits(num_heads, max_len, trainable=trainable)
