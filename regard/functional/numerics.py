"""Number types of sums, unit norms, and exp at one speed for all numbers.

`torch.exp` on a CPU takes 20 to 200 times as long for -inf, or where the result vanishes, as it takes for small
numbers, and masked scores are full of both. `torch.exp2` does not: exp(x) = 2^(x log2 e), with |x| 2^-24 relative error.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

LOG2_E = math.log2(math.e)


def wide_type(z: Tensor) -> torch.dtype:
    """The type in which sums are kept: float32 at least."""
    return torch.promote_types(z.dtype, torch.float32)


def autocast_dtype(z: Tensor) -> torch.dtype | None:
    """The dtype that autocast casts to on z's device; None if autocast is off there."""
    kind = z.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return None


def unit_norm(z: Float[Tensor, "*b K"], eps: float = 1e-12) -> Float[Tensor, "*b K"]:
    """z / max(|z|, eps), in float32 at least; a row of zeros stays zero.

    eps: see `least`.
    """
    wide = z.to(wide_type(z))
    squares = wide.square().sum(-1, keepdim=True)  # far faster than a norm on a CPU
    return (wide * squares.clamp(min=least(z, eps) ** 2).rsqrt()).to(z.dtype)


def least(z: Tensor, eps: float) -> float:
    """The least number to divide by in z's type: eps, or 0.008 in float16, where gradients are multiplied by 1 / eps."""
    return max(eps, math.sqrt(torch.finfo(z.dtype).tiny))


def add_product(
    S: Float[Tensor, "b M V"], x: Float[Tensor, "b M t"], y: Float[Tensor, "b t V"]
) -> None:
    """S += x y in place; S may be of a wider type."""
    if S.dtype == x.dtype:
        S.baddbmm_(x, y)
    else:
        S += x @ y


def exp(x: Tensor) -> Tensor:
    return (x * LOG2_E).exp2_()


def exp_(x: Tensor) -> Tensor:
    """In place."""
    return x.mul_(LOG2_E).exp2_()
