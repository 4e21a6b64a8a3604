"""Rotary positions (Su et al. 2021, arXiv 2104.09864): channels are turned in pairs, by an angle that grows with position.

    (a, b) -> (a cos p w_i - b sin p w_i,  b cos p w_i + a sin p w_i),   w_i = base^(-2i/K),  i = 0 .. K/2 - 1

so that rotate(q, p) . rotate(k, j) depends on p - j only. Two pairings are in use, which are one another's permutation
of channels: "half" pairs (x_i, x_{i+K/2}), "adjacent" pairs (x_{2i}, x_{2i+1}).

Sinusoids of a position or a distance (Vaswani et al. 2017, arXiv 1706.03762) have the same angles:

    PE(p, 2i) = sin(p w_i),   PE(p, 2i+1) = cos(p w_i),   w_i = 10000^(-2i/D)

"adjacent" is that order; "half" is [sin | cos], the same up to a permutation of channels (arXiv 1901.02860).
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OptionError, ShapeError, Vectors

Pairing = Literal["half", "adjacent"]
AXES = {"half": -2, "adjacent": -1}
"""Where the two of a pair are stacked, before they are laid side by side."""


def rotate(
    x: Float[Tensor, "*heads T K"],
    position: Int[Tensor, "*b T"],
    base: float = 10000.0,
    pairing: Pairing = "half",
) -> Float[Tensor, "*heads T K"]:
    """x [.. T K] turned by its positions: [T], or [B T] where x is [B .. T K].

    Angles and their sines are made in float64 where the device has it, since an angle's error grows with its position;
    x keeps its dtype. Raises ShapeError where K is odd and OptionError for an unknown pairing.
    """
    if pairing not in AXES:
        raise OptionError(f"rotary: pairing must be 'half' or 'adjacent', got {pairing!r}")
    if x.shape[-1] % 2:
        raise ShapeError(f"rotary: channels turn in pairs, so K must be even, got {x.shape[-1]}")
    exact = torch.float32 if x.device.type == "mps" else torch.float64
    turn = angles(position, x.shape[-1], base, exact)
    if position.ndim == 2:
        turn = turn.reshape(turn.shape[0], *(1,) * (x.ndim - 3), *turn.shape[1:])
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    cos = turn.cos().type_as(wide)
    sin = turn.sin().type_as(wide)
    if pairing == "half":
        a, b = wide.chunk(2, -1)
    else:
        a, b = wide[..., 0::2], wide[..., 1::2]
    left = (a * cos).addcmul_(b, sin, value=-1)
    right = (b * cos).addcmul_(a, sin)
    return torch.stack([left, right], AXES[pairing]).flatten(-2).type_as(x)


def angles(
    position: Int[Tensor, "*b T"], K: int, base: float, dtype: torch.dtype
) -> Float[Tensor, "*b T k"]:
    """p w_i for each position and each of the K/2 frequencies."""
    last = 2 / K - 1  # the exponent of the slowest frequency
    w = torch.logspace(0, last, K // 2, base=base, dtype=dtype, device=position.device)
    return position[..., None] * w


def sinusoid(
    position: Int[Tensor, "*b"],
    dim: int,
    *,
    base: float = 10000.0,
    pairing: Pairing,
    dtype: torch.dtype,
) -> Vectors:
    """|PE(p)|^2 = D/2, and PE(p) . PE(p + k) depends on k alone; where D is odd the last column is dropped."""
    turn = angles(position, dim + dim % 2, base, torch.promote_types(dtype, torch.float32))
    table = torch.stack([turn.sin(), turn.cos()], AXES[pairing]).flatten(-2)
    return table[..., :dim].to(dtype)
