"""Several views of one tensor, each with its own scale and offset per channel (arXiv 2202.10447)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class OffsetScale(nn.Module):
    """z [B T K] -> views [B n T K], z gamma_i + beta_i; gamma ~ N(0, std^2), beta = 0."""

    def __init__(self, dim: int, views: int, *, std: float):
        super().__init__()
        self.gamma = nn.Parameter(std * torch.randn(views, dim))
        self.beta = nn.Parameter(torch.zeros(views, dim))

    def forward(self, z: Float[Tensor, "B T K"]) -> Float[Tensor, "B n T K"]:
        return torch.addcmul(self.beta[:, None], z[:, None], self.gamma[:, None])
