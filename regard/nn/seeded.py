"""Random values that belong to a module: drawn once, from a seed, and saved in buffers."""

import torch
from torch import Tensor


def normal(*shape: int, seed: int | None) -> Tensor:
    """Standard normal values; without a seed they come from torch's own generator."""
    if seed is None:
        return torch.randn(*shape)
    drawn = torch.randn(*shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return drawn.to(torch.get_default_device())
