"""Layer norm without gain and bias, by which tokens are grouped."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def standardised(z: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """Without mean and scale, on the sphere of radius sqrt(K) (arXiv 2003.05997)."""
    return F.layer_norm(z, z.shape[-1:])
