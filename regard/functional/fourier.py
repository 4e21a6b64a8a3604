"""Mixing by the discrete Fourier transform (FNet, Lee-Thorp et al. 2021, arXiv 2105.03824).

    y = Re( F_seq F_hid x )

x is real: y_kl = y_(n-k, D-l), so that half of the channels are transformed. Rows of different lengths are transformed in one batch by
Bluestein's identity jk = (j^2 + k^2 - (k - j)^2) / 2, which makes a transform of any length n a convolution with the chirp exp(i pi m^2 / n).
Its phase is taken from m^2 mod 2n in integers, so that long rows lose no digits.
"""

import math
from typing import Literal

import torch
from jaxtyping import Complex, Int
from torch import Tensor

from regard.core import OPEN, Mask, Tokens, permute
from regard.functional.rows import Impl, choose, upto, wide_type

Norm = Literal["backward", "ortho"]


def fourier_mixing(
    x: Tokens, *, mask: Mask = OPEN, norm: Norm = "backward", impl: Impl = "auto"
) -> Tokens:
    """Real part of the transform over tokens and channels; a row with padding is transformed at its own length.

    With `mask.valid`, valid tokens come first in every row. norm: "backward" leaves sums as they are, "ortho" divides
    by sqrt(n D). Computed in float32 where x has less.
    """
    return choose("fourier", transform, impl)(x, mask=mask, norm=norm)


def transform(x: Tensor, *, mask: Mask = OPEN, norm: Norm) -> Tensor:
    T, D = x.shape[1:]
    wide = x.to(wide_type(x))
    if mask.valid is None:
        n = torch.full((1,), T, device=x.device)
        half = torch.fft.rfft2(wide, dim=(1, 2)).real
        opposite = half.flip(1).roll(1, 1)
    else:
        n = mask.valid.sum(1).clamp_min(1)
        half = transform_rows(torch.fft.rfft(wide, dim=2), n).real
        opposite = permute(half, (n[:, None] - upto(T, x)) % n[:, None])
    y = torch.cat([half, opposite[..., 1 : D - D // 2].flip(2)], 2)
    if norm == "ortho":
        y = y / (n.type_as(y) * D).sqrt()[:, None, None]
    return y.type_as(x)


def transform_rows(x: Complex[Tensor, "B T D"], n: Int[Tensor, "B"]) -> Complex[Tensor, "B T D"]:
    """X_k = sum_{j < n_b} x_j exp(-2 pi i j k / n_b) for k < n_b in each row b; later entries have no meaning."""
    T = x.shape[1]
    index, n = upto(T, x), n[:, None]
    turns = index * index % (2 * n)
    angle = math.pi * turns.type_as(x.real) / n
    chirp = torch.polar(torch.ones_like(angle), angle)
    back = chirp.conj()[..., None]
    x = (x * back).masked_fill((index >= n)[..., None], 0)
    # m = 0 .. T-1, one that nothing reads, -(T-1) .. -1
    around = torch.cat([chirp, chirp.flip(1).roll(1, 1)], 1)
    product = torch.fft.fft(x, n=2 * T, dim=1) * torch.fft.fft(around, dim=1)[..., None]
    return torch.fft.ifft(product, dim=1)[:, :T] * back
