"""Factorized Dense Synthesizer (Tay et al. 2020, arXiv 2005.00743): a token makes two short vectors, not a long one.

    h_i = relu(W_1 x_i + b_1),   A_i = W_A h_i + b_A  (a entries),   C_i = W_C h_i + b_C  (b entries),   a b >= max_len
    B_{i, p b + q} = A_ip C_iq,   y_i = softmax(B_i) V

Cost: T^2 V + T F (a + b) per head, F = `head_hidden_dim`. The paper leaves open how A and C are made (here: one shared
hidden layer) and tiles both vectors, which reaches all pairs (p, q) only where a and b have no common divisor: the
default is the outer product, `tiling="same"` the literal reading. a = `first_factor` (default: near
sqrt(max_len)), b is the least that serves.
"""

from typing import Literal

from regard.core import Capabilities, Mixer, No
from regard.core.shapes import check_positive
from regard.functional.shared.implementation import Impl, check_impl
from regard.nn.logits import FactorizedDenseLogits, near_square
from regard.nn.synthesis import Synthesis


class SynthesizerFactorizedDense(Mixer):
    name = "synthesizer_factorized_dense"
    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=True,
        cross=No("its weights are made by one sequence, for positions of that sequence"),
        streaming="exact",
        attention_map=True,
        any_length=No("the products of its factors are max_len logits"),
        positions=frozenset({"absolute"}),
        time="T^2 H V",
        memory="T D",
        state="T D",
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
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl)
        factors = near_square(max_len)
        if first_factor is not None:
            check_positive(first_factor=first_factor)
            factors = (first_factor, -(-max_len // first_factor))
        self.num_heads = num_heads
        hidden = dim // num_heads if head_hidden_dim is None else head_hidden_dim
        logits = FactorizedDenseLogits(
            dim, num_heads, hidden=hidden, factors=factors, tiling=tiling
        )
        self.synthesis = Synthesis(dim, num_heads, max_len, logits, impl)

    def mix(self, x, context, mask):
        return self.synthesis.mix(x, mask)

    def _initial_state(self, batch_size, max_len, context, valid):
        return self.synthesis.initial_state(batch_size, max_len)

    def _extend(self, x, state, valid, donate):
        return self.synthesis.extend(x, state, valid, donate)

    def _observe(self, x, context, mask):
        return self.synthesis.observe(x, mask)
