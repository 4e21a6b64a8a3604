"""Routes: what a token's query or key is without its mean and scale, on the sphere of radius sqrt(K) (arXiv 2003.05997)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

EPS = 1e-5  # of layer norm


class Routes(NamedTuple):
    """Made once, for decisions and for kernels that take gradients back to the tokens themselves."""

    value: Float[Tensor, "*b K"]
    rstd: Float[Tensor, "*b 1"]


def route(z: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """Layer norm without gain and bias."""
    return F.layer_norm(z, z.shape[-1:])


def routes_of(z: Float[Tensor, "*b K"]) -> Routes:
    """Without a gradient."""
    value, _, rstd = torch.native_layer_norm(z.detach(), z.shape[-1:], None, None, EPS)
    return Routes(value, rstd)


def through_routes(routes: Routes, d: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """The gradient of the tokens from that of their routes, rstd (d - mean d - r mean(d r))."""
    r, rstd = routes
    mean, one, only = r.new_zeros(rstd.shape), r.new_ones(rstd.shape), [True, False, False]
    backward = torch.ops.aten.native_layer_norm_backward
    dz = backward(d, r, r.shape[-1:], mean, one, None, None, only)[0]
    return dz.mul_(rstd.to(dz.dtype))
