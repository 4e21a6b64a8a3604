"""FNet (Lee-Thorp et al. 2021, arXiv 2105.03824): tokens are mixed by a Fourier transform, nothing is learned.

    y = Re( F_seq F_hid x )

Cost: T D (log T + log D). The transform is not normalised, as in the paper, so y grows like sqrt(T D) and wants a norm
after it (`norm="ortho"` divides by sqrt(T D)). The paper lets padding take part and change every output; here a row
is transformed at its own length, by a chirp transform where rows of a batch differ.

Args:
    norm: scale of the transform
"""

from regard.core import Mixer, No
from regard.functional.fourier import Norm, fourier_mixing
from regard.functional.rows import Impl, check_impl
from regard.mixers._base import ALL


class FNet(Mixer):
    __doc__ = __doc__
    name = "fnet"
    family = "fourier"
    paper = "Lee-Thorp et al. 2021, arXiv 2105.03824"
    capabilities = ALL.but(
        causal=No("every output of a Fourier transform depends on every token"),
        pairwise=No(
            "its mixing weights are fixed by the length, so single pairs cannot be taken out"
        ),
        cross=No("a Fourier transform maps one sequence to itself"),
        streaming=No("a further token changes every earlier output"),
        attention_map=No("its mixing weights are complex and differ by channel"),
        time="T log T D + T D log D",
        state=None,
    )
    variants = {"ortho": {"norm": "ortho"}}

    def __init__(self, dim: int, *, norm: Norm = "backward", impl: Impl = "auto"):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, "fourier")
        self.norm = norm

    def mix(self, x, context, mask):
        return fourier_mixing(x, mask=mask, norm=self.norm, impl=self.impl)
