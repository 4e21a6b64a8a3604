"""Feature maps: phi(q) . phi(k) is the kernel that linear attention uses in the place of exp(q . k).

    elu_plus_one    elu(x) + 1                                            arXiv 2006.16236
    fourier         [sin(w x), cos(w x)] / sqrt(M)                        arXiv 2103.02143:  E = exp(-|x - y|^2 / 2)
    arc_cosine      relu(w x) / sqrt(M)                                   arXiv 2103.02143
    FAVOR+          exp(w x - |x|^2 / 2 - c),   x = q / K^(1/4)           arXiv 2009.14794:  E = exp(q . k / sqrt(K) - c_q - c_k)

with w ~ N(0, I). A user's own map is any function [.. K] -> [.. M]; random ones take their projection w as an argument.

FAVOR+: "hyperbolic" features add exp(-w x - |x|^2 / 2 - c); generalised kernels are f(w x) + 1e-3 with "relu" or any function f >= 0. The
factor M^(-1/2) of the paper cancels in the quotient. c keeps exponents <= 0: for a query it is the largest w x - |x|^2 / 2, for keys that of
all valid positions or, in causal order, of the positions so far, so that a sum under a smaller c decays when c grows. In causal order it
cancels, and takes no gradient. Otherwise 1e-6, which is not in the paper, is added to all features, and keeps it from cancelling. As in the
published code, stabiliser="published" takes the largest w x.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core import Catalog, Marks, Queries, TensorMap
from regard.functional.rows import least, unit_norm, wide_type

Favor = Literal["positive", "hyperbolic", "relu"] | TensorMap
Stabiliser = Literal["strict", "published"]
RandomKernel = Literal["fourier", "arc_cosine"]
Total = Float[Tensor, "B H T 1"]  # what the sum of a query's values is divided by
Projection = Float[Tensor, "h M K"]  # random rows of each head, or of all

EPS = 1e-6
KERNEL_EPS = 1e-3
UNIT_EPS = 1e-6  # the least length by which a token is divided
FORGOTTEN = -104.0
"""exp of it is zero in float32; a larger decay would cost the digits of the smaller ones near it."""


class Keys(NamedTuple):
    """phi of keys, zero where there is no token; decays of the sums before each; what later keys need of them."""

    phi: Float[Tensor, "B H S M"]
    log_decay: Float[Tensor, "B H S"] | None = None
    c: Float[Tensor, "B H"] | None = None


@dataclass(frozen=True)
class FeatureMap:
    """A named map without parameters."""

    name: str
    function: TensorMap

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)


def elu_plus_one(x: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    return x.clamp_max(0).exp() + x.relu()


FEATURE_MAPS = Catalog(
    "feature map",
    (
        FeatureMap("elu_plus_one", elu_plus_one),
        FeatureMap("relu", F.relu),
        FeatureMap("squared_relu", lambda x: F.relu(x).square()),
        FeatureMap("softplus", F.softplus),
    ),
)


def feature_map(choice: str | TensorMap) -> TensorMap:
    """A map of the catalogue by name; a function is itself."""
    return FEATURE_MAPS[choice].function if isinstance(choice, str) else choice


def present(z: Float[Tensor, "B H S *M"], valid: Bool[Tensor, "b S"] | None) -> Tensor:
    """z, and zero where there is no token."""
    return z if valid is None else z * valid.view(valid.shape[0], 1, -1, *[1] * (z.ndim - 3))


Denominator = TensorMap  # sum of a row's weights -> what its values are divided by


def positive(total: Total) -> Total:
    """The denominator of features that are never negative: eps is added."""
    return total + least(total, EPS)


def floored(total: Total) -> Total:
    """Nothing is added; a denominator that has vanished gives zero, and no gradient."""
    return torch.where(total < torch.finfo(total.dtype).tiny ** 0.5, torch.inf, total)


def signed(total: Total) -> Total:
    """The denominator of features of either sign: n -> sgn(n) max(|n|, eps), with sgn(0) = 1."""
    eps = least(total, EPS)
    return torch.where(total < 0, total.clamp_max(-eps), total.clamp_min(eps))


# ------------------------------------------------------------------ random features of directions


def fourier(x: Float[Tensor, "*b T K"], w: Float[Tensor, "*p M K"]) -> Float[Tensor, "*b T M2"]:
    wx = x @ w.mT
    return torch.cat([wx.sin(), wx.cos()], -1) * w.shape[-2] ** -0.5


def arc_cosine(x: Float[Tensor, "*b T K"], w: Float[Tensor, "*p M K"]) -> Float[Tensor, "*b T M"]:
    return F.relu(x @ w.mT) * w.shape[-2] ** -0.5


def unit_features(x: Queries, w: Projection, kernel: RandomKernel) -> Float[Tensor, "B H T m"]:
    """Features of x / |x|: the factors exp(|x|^2 / 2) of the kernel are then the same for all tokens."""
    return (fourier if kernel == "fourier" else arc_cosine)(unit_norm(x, UNIT_EPS), w)


def unit_keys(
    k: Float[Tensor, "B H S K"],
    w: Projection,
    kernel: RandomKernel,
    gate: Float[Tensor, "B H S"] | None,
    valid: Marks | None,
) -> Keys:
    """Features and decays of a gate in logits: (1 - g) phi(k) and log g, with g = sigmoid(gate). An absent token forgets nothing."""
    phi = present(unit_features(k, w, kernel), valid)
    if gate is None:
        return Keys(phi)
    return Keys(phi * torch.sigmoid(-gate)[..., None], present(F.logsigmoid(gate), valid))


# ------------------------------------------------------------------ FAVOR+


def kernel_of(features: Favor) -> TensorMap | None:
    """f of a generalised kernel; None where exponentials estimate softmax."""
    return F.relu if features == "relu" else features if callable(features) else None


def favor_queries(
    q: Queries, w: Projection, features: Favor, stabiliser: Stabiliser, *, causal: bool
) -> Float[Tensor, "B H T m"]:
    wx, half = projected(q, w, features)
    if (kernel := kernel_of(features)) is not None:
        return kernel(wx) + KERNEL_EPS
    if causal:  # a factor of a query cancels, and its gradient too
        return (wx - wx.detach().amax(-1, keepdim=True)).exp().type_as(q)
    level = wx.amax(-1)
    level = level + half if stabiliser == "published" else level
    return ((wx - level[..., None]).exp() + EPS).type_as(q)


def favor_keys(
    k: Float[Tensor, "B H S K"],
    w: Projection,
    features: Favor,
    stabiliser: Stabiliser,
    *,
    causal: bool,
    valid: Marks | None,
    before: Float[Tensor, "B H"] | None = None,
) -> Keys:
    """before: c of the tokens that came earlier (none: there are none)."""
    wx, half = projected(k, w, features)
    if (kernel := kernel_of(features)) is not None:
        return Keys(present(kernel(wx) + KERNEL_EPS, valid), None, before)
    absent = None if valid is None else ~valid[:, None]
    # |x|^2 / 2 as a part of c
    peak = wx.amax(-1)
    size = torch.zeros_like(half) if stabiliser == "published" else half
    if causal:
        peak, size = peak.detach(), size.detach()
    top = peak - size
    none = lowest(top.dtype)
    top = top if absent is None else top.masked_fill(absent, none)
    c, log_decay = top.amax(-1, keepdim=True), None
    # c_i = max(before, top_0 .. top_i), and what a sum under the previous c is multiplied by
    if causal:
        c = torch.full_like(c, none) if before is None else before.detach().type_as(c)[..., None]
        c = torch.cat([c, top.clamp_min(none)], -1).cummax(-1).values
        previous, c = c[..., :-1], c[..., 1:]
        log_decay = (previous - c).clamp_min(FORGOTTEN)
        log_decay = log_decay.masked_fill(previous <= none, 0.0)  # nothing yet, nothing to forget
    # |x|^2 / 2 + c, as a sum around w x: beside |x|^2 the digits of c would be lost.
    level = peak + (c - top) + (half - size)
    level = level if absent is None else level.masked_fill(absent, torch.inf)
    phi = (wx - level[..., None]).exp()
    phi = phi if causal else present(phi + EPS, valid)
    return Keys(phi.type_as(k), log_decay, c[..., -1])


def lowest(dtype: torch.dtype) -> float:
    """A maximum over nothing: finite, so that differences are numbers."""
    return torch.finfo(dtype).min / 2


def projected(
    x: Queries, w: Projection, features: Favor
) -> tuple[Float[Tensor, "B H T m"], Float[Tensor, "B H T"]]:
    """w x and |x|^2 / 2 of the scaled tokens, in float32 at least where exponentials are to be taken."""
    scale = x.shape[-1] ** -0.25
    wx = (x * scale) @ w.mT
    if kernel_of(features) is None:
        wx = wx.to(wide_type(x))
    if features == "hyperbolic":
        wx = torch.cat([wx, -wx], -1)
    return wx, x.type_as(wx).square().sum(-1) * (scale**2 / 2)


# ------------------------------------------------------------------ projections


def gaussian_rows(
    num_features: int,
    dim: int,
    *,
    orthogonal: bool,
    generator: torch.Generator,
    unit_norms: bool = False,
) -> Float[Tensor, "M K"]:
    """Rows w ~ N(0, I) in float64 on the CPU: independent, or orthogonal in blocks of `dim` rows.

    Orthogonal rows come from the QR decomposition of a Gaussian, columns multiplied by the sign of R's diagonal (without
    it the law is not uniform and positive features are biased), with independent chi-distributed norms; `unit_norms`
    uses sqrt(dim) for all norms instead, which is biased.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")

    if not orthogonal:
        return normal(num_features, dim)
    blocks = []
    for _ in range(-(-num_features // dim)):
        Q, R = torch.linalg.qr(normal(dim, dim))
        blocks.append((Q * R.diagonal().sign()).T)
    rows = torch.cat(blocks)[:num_features]
    if unit_norms:
        return rows * dim**0.5
    return rows * normal(num_features, dim).norm(dim=1, keepdim=True)
