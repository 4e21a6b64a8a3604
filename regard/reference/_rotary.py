"""Rotary positions by the definition: channel pair (c, c + K/2), or (2c, 2c + 1), turned by position * base^(-2c/K)."""

import math

import torch
from torch import Tensor


def turned(z: Tensor, options: dict) -> Tensor:
    """z [T H K] by `rope` at its places, where options say position="rotary"."""
    if options.get("position") != "rotary":
        return z
    given = options.get("position_options") or {}
    return torch.stack([rope(of, t, **given) for t, of in enumerate(z)])


def rope(
    x: Tensor,
    position: int,
    base: float = 10000.0,
    pairing: str = "half",
    channels: int | None = None,
) -> Tensor:
    """x [.. K] -> [.. K]; channels: the first, which alone are turned."""
    half, y = (channels or x.shape[-1]) // 2, list(x.unbind(-1))
    for c in range(half):
        a, b = (c, c + half) if pairing == "half" else (2 * c, 2 * c + 1)
        angle = position * base ** (-c / half)
        cos, sin = math.cos(angle), math.sin(angle)
        y[a], y[b] = y[a] * cos - y[b] * sin, y[b] * cos + y[a] * sin
    return torch.stack(y, -1)
