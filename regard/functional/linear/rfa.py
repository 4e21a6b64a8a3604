"""Random Feature Attention: a Gaussian or arc-cosine kernel through random features (Peng et al. 2021, arXiv 2103.02143).

Features of either sign: a denominator near zero is held away from it, with its sign.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.linear.attention import EPS, feature_attention
from regard.functional.linear.chunked import Features, HandWritten, KeyFeatures
from regard.functional.linear.feature_maps import arc_cosine_features, fourier_features
from regard.functional.shared.implementation import Impl
from regard.functional.shared.numerics import least, unit_norm, wide_type

Kernel = Literal["fourier", "arc_cosine"]
UNIT_EPS = 1e-6  # the least length by which a token is divided


def random_feature_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    w: Float[Tensor, "h M K"],
    *,
    mask: Mask = OPEN,
    features: Kernel = "fourier",
    gate: Float[Tensor, "B H S"] | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Attention from random features of the directions of q and k. A gate, in logits, needs `mask.causal`.

    impl: see `implementation`.
    """

    def keys(before: None, k: Tensor, valid: Tensor | None, gate: Tensor | None, w: Tensor):
        return KeyFeatures(*gated(unit_features(k, w, features), gate))

    width = w.shape[1] * (2 if features == "fourier" else 1)
    hand_written = None if gate is not None or features != "fourier" else UNIT_FOURIER_BY_HAND
    made = Features(
        width,
        lambda q, w: unit_features(q, w, features),
        keys,
        decays=gate is not None,
        hand_written=hand_written,
    )
    return feature_attention(q, k, v, made, w, mask=mask, extra=gate, denominator=signed, impl=impl)


def unit_features(
    x: Float[Tensor, "B H T K"],
    w: Float[Tensor, "h M K"],
    features: Kernel,
    sigma: Float[Tensor, "H K"] | None = None,
) -> Float[Tensor, "B H T m"]:
    """Features of x / |x|: the factors exp(|x|^2 / 2) of the kernel are then the same for all tokens.

    sigma: a factor of the channels of w, which few tokens carry more cheaply.
    """
    phi = fourier_features if features == "fourier" else arc_cosine_features
    unit = unit_norm(x, UNIT_EPS)
    return phi(unit if sigma is None else unit * sigma[:, None], w)


def unit_fourier_by_hand(
    x: Float[Tensor, "b H T K"], w: Float[Tensor, "H M K"], scale: float = 1.0
):
    """Fourier features of x / |x|, times scale sqrt(M), and what makes dx and dw of their gradient."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide_type(x))
    eps = least(x, UNIT_EPS)
    shrink = norm.clamp_min(eps).reciprocal_()
    unit = (x * shrink).to(x.dtype)
    wx, M = unit @ w.mT, w.shape[-2]
    phi = wx.new_empty(*wx.shape[:-1], 2 * M)
    torch.sin(wx, out=phi[..., :M])
    torch.cos(wx, out=phi[..., M:])
    if scale != 1.0:
        phi *= scale

    def back(dphi: Tensor):
        dwx = torch.mul(dphi[..., :M], phi[..., M:], out=wx)
        dwx.addcmul_(dphi[..., M:], phi[..., :M], value=-1)
        dw = (dwx.mT @ unit).sum_to_size(w.shape) if w.requires_grad else None
        dunit = dwx @ w
        along = (dunit * unit).sum(-1, keepdim=True).mul_(norm >= eps)
        return dunit.addcmul_(unit, along, value=-1).mul_(shrink), dw

    return phi, back


def _keys_by_hand(before: None, k: Tensor, valid: Tensor | None, w: Tensor):
    """Those of queries are left as they are: one factor serves both."""
    phi, back = unit_fourier_by_hand(k, w, 1 / w.shape[-2])
    return KeyFeatures(phi), back


UNIT_FOURIER_BY_HAND = HandWritten(unit_fourier_by_hand, _keys_by_hand)


def gated(
    phi_k: Float[Tensor, "B H S M"], gate: Float[Tensor, "B H S"] | None = None
) -> tuple[Tensor, Tensor | None]:
    """(1 - g) phi(k) and log g, with g = sigmoid(gate): S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T."""
    if gate is None:
        return phi_k, None
    return phi_k * torch.sigmoid(-gate)[..., None], F.logsigmoid(gate)


def signed(total: Float[Tensor, "B H T 1"]) -> Float[Tensor, "B H T 1"]:
    """n -> sgn(n) max(|n|, eps), with sgn(0) = 1."""
    eps = least(total, EPS)
    return torch.where(total < 0, total.clamp(max=-eps), total.clamp(min=eps))
