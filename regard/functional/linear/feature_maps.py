"""Feature maps as values. A user's own is any function [.. K] -> [.. M]; random ones take their projection as an argument.

phi(q) phi(k) is the kernel that a mechanism uses instead of exp(q k).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.catalog import Catalog
from regard.functional.shared.implementation import loses_backward

LOWEST = -87.0  # torch.exp is slow below, where its results are no longer normal numbers


@dataclass(frozen=True)
class FeatureMap:
    """A named map without parameters."""

    name: str
    function: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)


def elu_plus_one(x: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """elu(x) + 1: positive, as many features as inputs (arXiv 2006.16236)."""
    if loses_backward():
        return F.elu(x) + 1
    return _EluPlusOne.apply(x) if torch.is_grad_enabled() else _elu_plus_one(x)


def _elu_plus_one(x: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """exp(min(x, 0)) + max(x, 0), which needs no expm1, the slowest of these."""
    return x.clamp(LOWEST, 0).exp_().add_(x.clamp(min=0))


class _EluPlusOne(torch.autograd.Function):
    """Its derivative is min(phi, 1)."""

    @staticmethod
    def forward(ctx, x):
        phi = _elu_plus_one(x)
        ctx.save_for_backward(phi)
        return phi

    @staticmethod
    def backward(ctx, dphi):
        (phi,) = ctx.saved_tensors
        return dphi * phi.clamp(max=1)


def elu_plus_one_by_hand(x: Float[Tensor, "*b K"]):
    """The features, and what makes dx of their gradient."""
    phi = _elu_plus_one(x)
    return phi, lambda dphi: (phi.clamp_(max=1).mul_(dphi),)


FEATURE_MAPS = Catalog(
    "feature map",
    (
        FeatureMap("elu_plus_one", elu_plus_one),
        FeatureMap("relu", F.relu),
        FeatureMap("squared_relu", lambda x: F.relu(x).square()),
        FeatureMap("softplus", F.softplus),
    ),
)


def feature_map(choice: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A map of the catalogue by name; a function is itself."""
    return FEATURE_MAPS[choice] if isinstance(choice, str) else choice


def fourier_features(
    x: Float[Tensor, "*b T K"], w: Float[Tensor, "*p M K"]
) -> Float[Tensor, "*b T M2"]:
    """[sin(w x), cos(w x)] / sqrt(M): E phi(x) phi(y) = exp(-|x - y|^2 / 2) for w ~ N(0, I) (arXiv 2103.02143)."""
    circle = _Circle.apply if torch.is_grad_enabled() and not loses_backward() else _circle
    return circle(x @ w.transpose(-1, -2), w.shape[-2] ** -0.5)


def _circle(x: Float[Tensor, "*b M"], scale: float) -> Float[Tensor, "*b M2"]:
    return torch.cat([x.sin(), x.cos()], dim=-1).mul_(scale)


class _Circle(torch.autograd.Function):
    """scale [sin x, cos x], each the other's derivative but for a sign."""

    @staticmethod
    def forward(ctx, x, scale):
        phi = _circle(x, scale)
        ctx.save_for_backward(phi)
        return phi

    @staticmethod
    def backward(ctx, dphi):
        (sin, cos), (dsin, dcos) = (z.chunk(2, dim=-1) for z in (*ctx.saved_tensors, dphi))
        return dsin * cos - dcos * sin, None


def arc_cosine_features(
    x: Float[Tensor, "*b T K"], w: Float[Tensor, "*p M K"]
) -> Float[Tensor, "*b T M"]:
    """relu(w x) / sqrt(M): the arc-cosine kernel of order one (arXiv 2103.02143)."""
    return F.relu(x @ w.transpose(-1, -2)) / w.shape[-2] ** 0.5


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
