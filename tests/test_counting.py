"""Counts against values worked out by hand."""

import pytest
import torch
import torch.nn.functional as F

from regard import build
from regard.testing.counting import Counted, count

FLOAT = 4


@pytest.fixture(params=["cpu", "meta"])
def device(request):
    return request.param


def test_what_died_is_not_counted_and_what_stays_alive_is_once(device):
    x = torch.ones(100, device=device)

    def chain():
        y = x
        for _ in range(10):
            y = y + 1  # the one before is alive until the new one exists
        return y

    assert count(chain) == Counted(flops=0, peak_bytes=2 * 100 * FLOAT)

    def keep():
        kept = [x * 2 for _ in range(3)]
        return kept + [y.view(10, 10).T for y in kept], x.add_(1), x[3:]

    assert count(keep).peak_bytes == 3 * 100 * FLOAT


def test_backward(device):
    x = torch.ones(8, 16, device=device)
    w = torch.ones(16, 32, device=device, requires_grad=True)

    def step():
        y = x @ w
        z = y.relu()  # y dies, z is saved
        z.backward(torch.ones_like(z))  # gradients of z, of y, of w

    counted = count(step)
    y, grad_w = 8 * 32 * FLOAT, 16 * 32 * FLOAT
    assert counted.flops == 2 * (2 * 8 * 16 * 32)  # forward, and the gradient of w
    # y is a local of step until it returns
    assert 3 * y + grad_w <= counted.peak_bytes <= 4 * y + grad_w
    assert w.grad is not None


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention(device, causal):
    q, k, v = (torch.zeros(2, 3, 64, 8, device=device, requires_grad=True) for _ in range(3))
    pairs = 2 * 3 * (64 * 65 // 2 if causal else 64 * 64)
    forward = count(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    assert forward.flops == 2 * pairs * (8 + 8)
    # The output, and a logarithm for each query.
    assert forward.peak_bytes == 2 * 3 * 64 * (8 + 1) * FLOAT
    both = count(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward())
    assert both.flops == 2 * pairs * 16 + 2 * pairs * 5 * 8


def test_grouped_heads_and_masks(device):
    q = torch.zeros(1, 4, 16, 8, device=device)
    k, v = torch.zeros(1, 2, 32, 8, device=device), torch.zeros(1, 2, 32, 8, device=device)
    mask = torch.ones(1, 1, 16, 32, dtype=torch.bool, device=device)
    options = {"attn_mask": mask, "enable_gqa": True}
    with torch.no_grad():
        counted = count(lambda: F.scaled_dot_product_attention(q, k, v, **options))
    assert counted.flops == 2 * (4 * 16 * 32) * 16
    numbers = 4 * 16 * (8 + 1) * FLOAT + 16 * 32 * FLOAT
    assert numbers <= counted.peak_bytes <= numbers + 64


def test_fourier_transforms(device):
    x = torch.zeros(2, 64, 16, device=device)
    real = count(lambda: torch.fft.rfft(x, dim=1))
    assert real.flops == 2.5 * x.numel() * 6
    complex_ = count(lambda: torch.fft.fft(x + 0j, dim=1))
    assert complex_.flops == 5 * x.numel() * 6
    back = count(lambda: torch.fft.irfft(torch.fft.rfft(x, dim=1), dim=1))
    assert back.flops == 2 * real.flops


def test_convolution_linear_and_inference_mode():
    x, conv = torch.zeros(1, 4, 10), torch.nn.Conv1d(4, 6, 3)
    linear = torch.nn.Linear(10, 5, bias=False)
    assert count(lambda: conv(x)).flops == 2 * 4 * 6 * 3 * 8
    with torch.inference_mode():
        assert count(lambda: linear(x)).flops == 2 * 4 * 10 * 5


def test_a_whole_layer_counts_the_same_everywhere():
    def at(device):
        with torch.device(device):
            mixer, x = build("softmax", dim=64, num_heads=4), torch.zeros(1, 256, 64)
        return count(lambda: mixer(x).sum().backward())

    cpu, meta = at("cpu"), at("meta")
    # x needs no gradient
    assert cpu.flops == meta.flops == 9 * 2 * 256 * 64**2 + 2 * 256**2 * 64 * 7
    assert cpu.peak_bytes == pytest.approx(meta.peak_bytes, rel=0.02)
