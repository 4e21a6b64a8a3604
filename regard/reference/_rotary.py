"""Rotary positions by the definition: channel pair (c, c + K/2), or (2c, 2c + 1), turned by position * base^(-2c/K)."""

import torch
from torch import Tensor


def turned(z: Tensor, options: dict) -> Tensor:
    """z [T H K] by `rope` at its places, where options say position="rotary"."""
    if options.get("position") != "rotary":
        return z
    given = options.get("position_options") or {}
    return torch.stack([torch.stack([rope(x, t, **given) for x in of]) for t, of in enumerate(z)])


def rope(
    x: Tensor,
    position: int,
    base: float = 10000.0,
    pairing: str = "half",
    channels: int | None = None,
) -> Tensor:
    """x [K] -> [K]; channels: the first, which alone are turned."""
    if channels:
        return torch.cat([rope(x[:channels], position, base, pairing), x[channels:]])
    half = x.shape[0] // 2
    if pairing == "adjacent":
        turned = rope(torch.cat([x[0::2], x[1::2]]), position, base)
        return torch.stack([turned[c // 2 + (c % 2) * half] for c in range(2 * half)])
    angle = torch.tensor(
        [position * base ** (-c / half) for c in range(half)], dtype=x.dtype, device=x.device
    )
    a, b = x[:half], x[half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])
