"""Norms. LayerNorm and RMSNorm are torch's; ScaleNorm has one gain for all channels (Hua et al. 2022, arXiv 2202.10447).

RMSNorm(x) = g * x / sqrt(mean(x^2) + eps)        (Zhang and Sennrich 2019, arXiv 1910.07467)
ScaleNorm(x) = g x / sqrt(mean(x^2) + eps)
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Above0, Catalog, CheckedModule, CheckedOptions, Vectors
from regard.functional.rows import ranged


class LayerNorm(nn.LayerNorm, metaclass=CheckedOptions):
    """torch's, under a name, with a gain that begins at `start`. eps: added to the variance."""

    name = "layer"
    start = 1.0

    def __init__(self, dim: int, eps: Above0 = 1e-5):
        super().__init__(dim, eps)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.constant_(self.weight, self.start)


class RMSNorm(nn.RMSNorm, metaclass=CheckedOptions):
    """A norm with one gain for each channel, which takes no mean away."""

    name = "rms"
    start = 1.0

    def __init__(self, dim: int):
        super().__init__(dim, eps=1e-5)

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.start)

    def forward(self, x: Vectors) -> Vectors:
        if self.weight.dtype != torch.float16:
            return super().forward(x)
        return rms_norm(x, self.weight, self.eps).to(torch.float16)


def rms_norm(
    x: Vectors, gain: Float[Tensor, "D"] | None = None, eps: float | None = 1e-5
) -> Vectors:
    """RMSNorm's function; float16 is squared in float32. gain: None: one."""
    wide, gain = ranged(x, gain)
    return F.rms_norm(wide, wide.shape[-1:], gain, eps).type_as(x)


class ScaleNorm(CheckedModule):
    """eps is inside the root; g begins at `start`."""

    name = "scale"
    start = 1.0

    def __init__(self, dim: int, eps: Above0 = 1e-5):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.gain, self.start)

    def forward(self, x: Vectors) -> Vectors:
        wide, gain = ranged(x, self.gain)
        root = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (gain * wide * root).type_as(x)


def first_gain(dim: int, vocab_size: int) -> float:
    """The gain of the norm before logits h E^T, rows of E of length 1, with which a new model's loss is ln V and at most about 2 % more.

    A logit has this standard deviation, and that of the token itself, which h may hold, is sqrt(D) times as much. A smaller one is slower to learn.
    """
    own = max(1.0, math.log1p(0.01 * vocab_size * math.log(vocab_size)))
    return min(0.3, own * dim**-0.5)


def start_gain(norm: nn.Module, start: float) -> None:
    """The gain of one of NORMS begins here, now and when it is reset; a number that float32 holds, so that it is one in wider types."""
    assert isinstance(norm, LayerNorm | RMSNorm | ScaleNorm)
    norm.start = float(torch.tensor(start, dtype=torch.float32, device="cpu"))
    norm.reset_parameters()


NORMS: Catalog[type[LayerNorm] | type[RMSNorm] | type[ScaleNorm]] = Catalog(
    "norm", (LayerNorm, RMSNorm, ScaleNorm)
)
