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
    half = (channels or x.shape[-1]) // 2
    first, second = slice(half), slice(half, 2 * half)
    if pairing != "half":
        first = slice(0, 2 * half, 2)
        second = slice(1, 2 * half, 2)
    angles = [position * base ** (-c / half) for c in range(half)]
    cos, sin = (x.new_tensor([f(angle) for angle in angles]) for f in (math.cos, math.sin))
    a = x[..., first]
    b = x[..., second]
    y = x.clone()
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return y
