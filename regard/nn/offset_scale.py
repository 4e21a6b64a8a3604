"""Several views of one tensor, each with its own scale and offset per channel (arXiv 2202.10447)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class OffsetScale(nn.Module):
    """z -> (z gamma_1 + beta_1, ..., z gamma_n + beta_n); gamma ~ N(0, std^2), beta = 0."""

    def __init__(self, dim: int, views: int, *, std: float):
        super().__init__()
        self.gamma = nn.Parameter(std * torch.randn(views, dim))
        self.beta = nn.Parameter(torch.zeros(views, dim))

    def forward(self, z: Float[Tensor, "B T K"]) -> tuple[Float[Tensor, "B T K"], ...]:
        return tuple(z * gamma + beta for gamma, beta in zip(self.gamma, self.beta, strict=True))
