"""Norms. LayerNorm and RMSNorm are torch's; ScaleNorm has one gain for all channels (Hua et al. 2022, arXiv 2202.10447).

RMSNorm(x) = g * x / sqrt(mean(x^2) + eps)        (Zhang and Sennrich 2019, arXiv 1910.07467)
ScaleNorm(x) = g x / sqrt(mean(x^2) + eps)
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.catalog import Catalog
from regard.functional.rows import ranged


class LayerNorm(nn.LayerNorm):
    """torch's, under a name. normalized_shape: channels of a token. eps: added to the variance."""

    name = "layer"


class RMSNorm(nn.RMSNorm):
    """One gain for each channel, and no mean is taken away."""

    name = "rms"

    def __init__(self, dim: int):
        super().__init__(dim, eps=1e-5)

    def forward(self, x: Float[Tensor, "*b D"]) -> Float[Tensor, "*b D"]:
        if self.weight.dtype != torch.float16:
            return super().forward(x)
        x, gain = ranged(x, self.weight)
        return F.rms_norm(x, self.normalized_shape, gain, self.eps).to(torch.float16)


class ScaleNorm(nn.Module):
    """eps is inside the root; g starts at 1."""

    name = "scale"

    def __init__(self, dim: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.gain)

    def forward(self, x: Float[Tensor, "*b D"]) -> Float[Tensor, "*b D"]:
        return self.gain * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


NORMS: Catalog[type[LayerNorm] | type[RMSNorm] | type[ScaleNorm]] = Catalog(
    "norm", (LayerNorm, RMSNorm, ScaleNorm)
)
