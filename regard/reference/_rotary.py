"""Rotary positions by the definition: channel pair (c, c + K/2) turned by position * 10000^(-2c/K)."""

import torch
from torch import Tensor


def rope(x: Tensor, position: int) -> Tensor:
    """x [K] -> [K]"""
    half = x.shape[0] // 2
    angle = torch.tensor(
        [position * 10000 ** (-c / half) for c in range(half)], dtype=x.dtype, device=x.device
    )
    a, b = x[:half], x[half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])
