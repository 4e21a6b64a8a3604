"""Dense Synthesizer (Tay et al. 2020, arXiv 2005.00743): a token alone decides how it weighs all positions.

    B_i = W_2 relu(W_1 x_i + b_1) + b_2,   y_i = softmax(B_i) V          B_i has one entry per position up to max_len

Logits are cut to the keys at hand before the softmax. Cost: T^2 (F + V) per head; weights are held for one tile of
queries at a time. W_1 reads the whole token; W_2 belongs to one head (`share_w2`: to all of them, as in public code).
layers=1 is the form that some articles give: B_i = W_2 x_i + b_2, without W_1 and relu.
Row i depends on x_i only, so a causal mask is all that causality needs; the state holds values and no keys.

Args:
    head_hidden_dim: channels of the hidden layer that makes a head's logits; None: those of a head
    share_w2: True: all heads share the second layer
    layers: layers of the network that makes the logits
"""

from typing import Literal

from regard.core import No, OptionError
from regard.functional.rows import Impl
from regard.mixers._synthesizer import SynthesizerMixer
from regard.nn.logits import DenseLogits


class SynthesizerDense(SynthesizerMixer):
    __doc__ = __doc__
    name = "synthesizer_dense"
    capabilities = SynthesizerMixer.capabilities.but(
        any_length=No("a token makes one logit for each of max_len positions"),
        time="T^2 H K",
        finite_to=10.0,
    )
    variants = {
        "shared": {"share_w2": True},
        "narrow": {"head_hidden_dim": 5},
        "one_layer": {"layers": 1},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int,
        head_hidden_dim: int | None = None,
        share_w2: bool = False,
        layers: Literal[1, 2] = 2,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, max_len, impl)
        if layers == 1 and head_hidden_dim is not None:
            raise OptionError("synthesizer_dense: layers=1 has no head_hidden_dim")
        hidden = None if layers == 1 else head_hidden_dim or dim // num_heads
        self.logits = DenseLogits(dim, num_heads, max_len, hidden=hidden, share_w2=share_w2)
