"""The two normalisations of queries and keys by which tokens are grouped."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.functional.shared.numerics import wide_type

EPS = 1e-12  # the least norm that is divided by


def unit_norm(z: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """z / |z|: the keys of shared queries and keys."""
    squares = z.to(wide_type(z)).square().sum(-1, keepdim=True)  # far faster than a norm on a CPU
    return z * squares.clamp(min=EPS**2).rsqrt().to(z.dtype)


def standardised(z: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """Without mean and scale, on the sphere of radius sqrt(K): layer norm without gain and bias (arXiv 2003.05997)."""
    return F.layer_norm(z, z.shape[-1:])
