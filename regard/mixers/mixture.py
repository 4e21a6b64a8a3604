"""A learned blend of logits (Synthesizer mixtures, Tay et al. 2020, arXiv 2005.00743).

    B = sum_m a_m B_m,   a = softmax(learned numbers, one per member and head),   y = concat_h( softmax(B_h) v_h ) W_out

`members`: the Synthesizer forms by their catalogue names, `fixed_patterns` (those that look back, one per head, as
log(P + 2^-10)), `softmax` (the scaled dot product) and every other score of SCORES by its name; members have the options
that are their defaults, and share values. The blend is the uniform one at the start, is made before mask and softmax, and
depends on no input. By default R + V, the paper's best. Cost: the members' together; T^2 per head at least.

Args:
    members: names of the logits that are blended
"""

from collections.abc import Sequence
from typing import Any

from regard.core import No, OptionError, UnknownNameError
from regard.functional.rows import Impl
from regard.mixers._base import ALL
from regard.mixers._synthesizer import SynthesizerMixer
from regard.mixers.synthesizer_dense import SynthesizerDense
from regard.mixers.synthesizer_factorized_dense import SynthesizerFactorizedDense
from regard.mixers.synthesizer_factorized_random import SynthesizerFactorizedRandom
from regard.mixers.synthesizer_random import SynthesizerRandom
from regard.nn.logits import BlendedLogits, FixedPatternLogits, PairLogits, PositionLogits
from regard.nn.scores import SCORES

SYNTHESIZERS: dict[str, Any] = {
    cls.name: cls
    for cls in (
        SynthesizerDense,
        SynthesizerRandom,
        SynthesizerFactorizedDense,
        SynthesizerFactorizedRandom,
    )
}


class Mixture(SynthesizerMixer):
    __doc__ = __doc__
    name = "mixture"
    capabilities = ALL.but(
        cross=No("its synthetic members make weights for positions of one sequence"),
        any_length=No("its synthetic members have weights for max_len positions"),
        finite_to=10.0,
    )
    variants = {
        "synthetic": {"members": ("synthesizer_dense", "synthesizer_random")},
        "factorized": {
            "members": ("synthesizer_factorized_dense", "synthesizer_factorized_random")
        },
        "scores": {"members": ("cosine", "location", "additive")},
        "patterns": {"members": ("fixed_patterns", "softmax")},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        members: Sequence[str] = ("softmax", "synthesizer_random"),
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, max_len, impl)
        names = tuple(members)
        if not names or len(set(names)) < len(names):
            raise OptionError(
                f"mixture: members must be different names, at least one, got {names}"
            )
        known = [*SYNTHESIZERS, "fixed_patterns", "softmax", *SCORES.names()]
        for name in names:
            if name not in known:
                raise UnknownNameError("member of mixture", name, known)
        bound = [name for name in names if name in SYNTHESIZERS or name == "location"]
        if bound and max_len is None:
            raise OptionError(f"mixture: {' and '.join(bound)} need max_len: pass max_len=")
        if not bound:
            self.declare(any_length=True)
        made = {name: _member(name, dim, num_heads, max_len) for name in names}
        self.logits = BlendedLogits(made, num_heads)


def _member(name: str, dim: int, num_heads: int, max_len: int | None) -> PositionLogits:
    if name in SYNTHESIZERS:
        return SYNTHESIZERS[name](dim, num_heads=num_heads, max_len=max_len).logits
    if name == "fixed_patterns":
        return FixedPatternLogits(num_heads)
    return PairLogits("scaled_dot" if name == "softmax" else name, dim, num_heads, max_len)
