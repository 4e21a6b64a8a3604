import torch

from regard.nn import NORMS


def test_scale_norm_is_its_formula_and_has_one_gain():
    norm = NORMS["scale"](6).double()
    norm.gain.data.fill_(1.7)
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    wanted = torch.stack([1.7 * row / ((row @ row) / 6 + 1e-5) ** 0.5 for row in x.reshape(-1, 6)])
    torch.testing.assert_close(norm(x), wanted.reshape(x.shape))
    assert sum(p.numel() for p in norm.parameters()) == 1


def test_scale_norm_of_zeros_is_zero_with_finite_gradient():
    norm = NORMS["scale"](4)
    x = torch.zeros(2, 4, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(2, 4)) and x.grad.isfinite().all()


def test_rms_norm_is_its_formula_with_a_gain_for_each_channel():
    norm = NORMS["rms"](6).double()
    norm.weight.data = torch.arange(1.0, 7.0, dtype=torch.float64)
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    rows = [norm.weight * row / ((row @ row) / 6 + 1e-5) ** 0.5 for row in x.reshape(-1, 6)]
    torch.testing.assert_close(norm(x), torch.stack(rows).reshape(x.shape))
