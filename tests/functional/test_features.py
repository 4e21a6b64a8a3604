"""Random features: unbiased, orthogonal rows no worse than independent ones, the law of the frequencies, the rate of the error."""

import pytest
import torch

from regard import Mask
from regard.functional import favor_attention, softmax_attention
from regard.functional.features import arc_cosine, fourier, gaussian_rows, projected

K, M, DRAWS = 8, 8, 4000


def pairs():
    generator = torch.Generator().manual_seed(3)
    x, noise = torch.randn(2, 3, K, generator=generator, dtype=torch.float64)
    x = 0.9 * x / x.norm(dim=1, keepdim=True)
    y = 0.6 * x + 0.15 * noise
    assert ((x + y).norm(dim=1) > 1).all()
    return x, y


def projections(orthogonal, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = [gaussian_rows(M, K, orthogonal=orthogonal, generator=generator) for _ in range(DRAWS)]
    return torch.stack(rows)


def exponential(features):
    def phi(x, w):
        x = K**0.25 * x[None, None]  # whose inner products are divided by K^(1/2)
        wx, half = projected(x, w, features)
        return (wx - half[..., None]).exp()[0] / wx.shape[-1] ** 0.5

    return phi


positive, hyperbolic = exponential("positive"), exponential("hyperbolic")


def estimates(phi, w):
    """phi(x) phi(y) for each draw [draws] and pair [3]."""
    x, y = pairs()
    return (phi(x, w) * phi(y, w)).sum(-1)


def arc_cosines(x, y):
    lengths = x.norm(dim=1) * y.norm(dim=1)
    angle = ((x * y).sum(-1) / lengths).acos()
    return lengths * (angle.sin() + (torch.pi - angle) * angle.cos()) / (2 * torch.pi)


def exponentials(x, y):
    return (x * y).sum(-1).exp()


KERNELS = {positive: exponentials, hyperbolic: exponentials, arc_cosine: arc_cosines}
KERNELS[fourier] = lambda x, y: (-(x - y).square().sum(-1) / 2).exp()


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("phi", KERNELS)
def test_features_are_unbiased(phi, orthogonal):
    found = estimates(phi, projections(orthogonal))
    off = (found.mean(0) - KERNELS[phi](*pairs())).abs() / (found.std(0) / DRAWS**0.5)
    assert (off < 4).all(), off


def test_orthogonal_rows_have_no_larger_variance_and_unit_norms_are_alike():
    ws = [projections(kind, seed=1) for kind in (True, False)]
    for phi in (positive, fourier):
        orthogonal, independent = (estimates(phi, w).var(0) for w in ws)
        assert (orthogonal <= independent).all(), (orthogonal, independent)
    generator = torch.Generator().manual_seed(0)
    rows = gaussian_rows(K, K, orthogonal=True, generator=generator)
    gram = rows @ rows.T
    assert (gram - gram.diagonal().diag()).abs().max() < 1e-12
    alike = gaussian_rows(3 * K - 2, K, orthogonal=True, generator=generator, unit_norms=True)
    assert alike.shape == (3 * K - 2, K)
    torch.testing.assert_close(alike.norm(dim=1), torch.full((3 * K - 2,), K**0.5).double())


def test_the_error_of_attention_shrinks_as_one_over_the_root_of_the_features():
    generator = torch.Generator().manual_seed(5)
    q, k, v = 0.5 * torch.randn(3, 1, 1, 32, K, generator=generator, dtype=torch.float64)
    exact = softmax_attention(q, k, v, mask=Mask(causal=True))

    def error(num_features):
        found = []
        for _ in range(24):
            w = gaussian_rows(num_features, K, orthogonal=True, generator=generator)
            found.append(favor_attention(q, k, v, w[None], mask=Mask(causal=True)) - exact)
        return torch.stack(found).square().mean().sqrt()

    rate = (error(64) / error(1024)).log2() / 4
    assert 0.4 < rate < 0.6, rate
