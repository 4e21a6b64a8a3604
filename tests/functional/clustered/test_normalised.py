"""Gradients through routes are those of layer norm, in every precision that kernels work in."""

import pytest
import torch

from regard import Mask
from regard.functional.clustered.normalised import Routes, route, routes_of, through_routes
from regard.mixers.routing import Routing

TYPES = [
    (torch.float64, torch.float64),
    (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.bfloat16),
]


@pytest.mark.parametrize("wide, dtype", TYPES)
def test_gradients_are_those_of_layer_norm(wide, dtype):
    """wide: what the kernel computes in."""
    torch.manual_seed(0)
    z, d = torch.randn(2, 50, 16, dtype=torch.float64), torch.randn(2, 50, 16, dtype=torch.float64)
    z = z.to(dtype).double().requires_grad_()
    (exact,) = torch.autograd.grad(route(z), z, d)
    routes = routes_of(z.detach().to(dtype))
    found = through_routes(Routes(routes.value.to(wide), routes.rstd), d.to(wide))
    assert found.dtype == wide
    bound = 1e-12 if dtype == torch.float64 else 2e-2
    assert (found - exact).norm() < bound * exact.norm()


@pytest.mark.parametrize("causal", [False, True])
def test_routing_trains_in_bfloat16(causal):
    torch.manual_seed(0)
    mixer = Routing(32, num_heads=2, num_clusters=4, window_size=16).bfloat16().train()
    x = torch.randn(2, 80, 32, dtype=torch.bfloat16, requires_grad=True)
    y = mixer(x, mask=Mask(causal=causal))
    grads = torch.autograd.grad(
        y.float().square().sum(), [x, *mixer.parameters()], allow_unused=True
    )
    assert grads[0] is not None and grads[0].dtype == torch.bfloat16
    assert all(torch.isfinite(g).all() for g in grads if g is not None)
