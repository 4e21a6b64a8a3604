"""Mixing by the discrete Fourier transform (FNet, Lee-Thorp et al. 2021, arXiv 2105.03824).

    y = Re( F_seq F_hid x )

Rows of different lengths are transformed in one batch by Bluestein's identity jk = (j^2 + k^2 - (k - j)^2) / 2, which
makes a transform of any length n a convolution with the chirp exp(i pi m^2 / n). Its phase is taken from m^2 mod 2n in
integers, so that long rows lose no digits.
"""

import math
from typing import Literal

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.choice import plain_alone


def fourier_mixing(
    x: Float[Tensor, "B T D"], *, mask: Mask = OPEN, norm: Literal["backward", "ortho"] = "backward"
) -> Float[Tensor, "B T D"]:
    """Real part of the transform over tokens and channels; a row with padding is transformed at its own length.

    With `mask.valid`, valid tokens come first in every row. norm: "backward" leaves sums as they are, "ortho" divides
    by sqrt(n D). Computed in float32 where x has less.
    """
    B, T, D = x.shape
    wide = x if x.dtype == torch.float64 else x.float()
    if mask.valid is None:
        y = _whole(wide) if plain_alone() else _Whole.apply(wide)
        n = torch.full((1,), T, device=x.device)
    else:
        n = mask.valid.sum(1).clamp_min(1)
        half = transform_rows(torch.fft.rfft(wide, dim=2), n).real
        opposite = (n[:, None] - torch.arange(T, device=x.device)) % n[:, None]
        mirrored = half[..., 1 : D - D // 2].flip(2)
        mirrored = mirrored.gather(1, opposite[..., None].expand(B, T, mirrored.shape[2]))
        y = torch.cat([half, mirrored], dim=2)
    if norm == "ortho":
        y = y / (n.to(y.dtype) * D).sqrt()[:, None, None]
    return y.to(x.dtype)


def _whole(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    D = x.shape[2]
    half = torch.fft.rfft2(x, dim=(1, 2)).real
    middle = half.shape[2]
    mirrored = half[..., 1 : D - D // 2].flip(2)  # x is real: y[k, l] = y[T - k, D - l]
    y = x.new_empty(x.shape)
    y[..., :middle] = half
    y[:, 0, middle:] = mirrored[:, 0]
    y[:, 1:, middle:] = mirrored[:, 1:].flip(1)
    return y


class _Whole(torch.autograd.Function):
    """Re(F x F) for rows without padding: the DFT matrices F are symmetric, so that it is its own gradient."""

    @staticmethod
    def forward(ctx, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return _whole(x)

    @staticmethod
    def backward(ctx, dy: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return _Whole.apply(dy)


def transform_rows(x: Complex[Tensor, "B T D"], n: Int[Tensor, "B"]) -> Complex[Tensor, "B T D"]:
    """X_k = sum_{j < n_b} x_j exp(-2 pi i j k / n_b) for k < n_b in each row b; later entries have no meaning."""
    T = x.shape[1]
    index = torch.arange(T, device=x.device)
    turns = index * index % (2 * n[:, None])
    angle = math.pi * turns.to(x.real.dtype) / n[:, None]
    chirp = torch.polar(torch.ones_like(angle), angle)
    x = torch.where((index < n[:, None])[..., None], x * chirp.conj()[..., None], x.new_zeros(()))
    around = torch.cat(
        [chirp, torch.zeros_like(chirp[:, :1]), chirp[:, 1:].flip(1)], dim=1
    )  # m = 0 .. T-1, -(T-1) .. -1
    product = torch.fft.fft(x, n=2 * T, dim=1) * torch.fft.fft(around, dim=1)[..., None]
    return torch.fft.ifft(product, dim=1)[:, :T] * chirp.conj()[..., None]
