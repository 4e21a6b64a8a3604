"""Factorized Dense Synthesizer (Tay et al. 2020, arXiv 2005.00743): a token makes two short vectors, not a long one.

    h_i = relu(W_1 x_i + b_1),   A_i = W_A h_i + b_A  (a entries),   C_i = W_C h_i + b_C  (b entries),   a b >= max_len
    B_{i, p b + q} = A_ip C_iq,   y_i = softmax(B_i) V

Cost: T^2 V + T F (a + b) per head, F = `head_hidden_dim`. The paper leaves open how A and C are made (here: one shared
hidden layer) and tiles both vectors, which reaches all pairs (p, q) only where a and b have no common divisor: the
default is the outer product, `tiling="same"` the literal reading. a = `first_factor` (default: near
sqrt(max_len)), b is the least that serves.

Args:
    first_factor: logits in the first factor; None: near the root of max_len
    head_hidden_dim: channels of the hidden layer that makes a head's logits; None: those of a head
    tiling: how two short vectors make a row: outer product, or tiled side by side
"""

from math import isqrt
from typing import Literal

from regard.core import No
from regard.functional.rows import Impl
from regard.mixers._synthesizer import SynthesizerMixer
from regard.nn.logits import FactorizedDenseLogits


class SynthesizerFactorizedDense(SynthesizerMixer):
    __doc__ = __doc__
    name = "synthesizer_factorized_dense"
    capabilities = SynthesizerMixer.capabilities.but(
        any_length=No("the products of its factors are max_len logits")
    )
    variants = {
        "unequal": {"first_factor": 43, "head_hidden_dim": 2},
        "same_tiling": {"first_factor": 43, "head_hidden_dim": 2, "tiling": "same"},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int,
        first_factor: int | None = None,
        head_hidden_dim: int | None = None,
        tiling: Literal["outer", "same"] = "outer",
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, max_len, impl)
        first = first_factor or isqrt(max_len)
        factors = first, -(-max_len // first)
        hidden = head_hidden_dim or dim // num_heads
        self.logits = FactorizedDenseLogits(
            dim, num_heads, hidden=hidden, factors=factors, tiling=tiling
        )
