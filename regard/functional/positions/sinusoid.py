"""Sinusoids of a position or a distance (Vaswani et al. 2017, arXiv 1706.03762).

    PE(p, 2i) = sin(p w_i),   PE(p, 2i+1) = cos(p w_i),   w_i = 10000^(-2i/D)

"adjacent" is that order; "half" is [sin | cos], the same up to a permutation of channels (arXiv 1901.02860).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import OptionError
from regard.functional.positions.rotary import Pairing, angles


def sinusoid(
    position: Int[Tensor, "*b"],
    dim: int,
    *,
    base: float = 10000.0,
    pairing: Pairing = "adjacent",
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*b D"]:
    """|PE(p)|^2 = D/2, and PE(p) . PE(p + k) depends on k alone; where D is odd the last column is dropped."""
    if pairing not in ("half", "adjacent"):
        raise OptionError(f"sinusoid: pairing must be 'half' or 'adjacent', got {pairing!r}")
    turn = angles(
        position, dim + dim % 2, base, torch.float64 if dtype == torch.float64 else torch.float32
    )
    if pairing == "half":
        table = torch.cat([turn.sin(), turn.cos()], dim=-1)
    else:
        table = torch.stack([turn.sin(), turn.cos()], dim=-1).flatten(-2)
    return table[..., :dim].to(dtype)
