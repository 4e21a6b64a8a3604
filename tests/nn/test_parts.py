"""Dice, feed-forward layers and convolutions with coordinates are their formulas; norms at odd numbers (tests/models: theirs)."""

from functools import partial

import pytest
import torch
from torch.nn.functional import conv2d, gelu, silu

from regard.nn import FEED_FORWARDS, NORMS, CoordConv2d
from regard.nn.dice import Dice
from regard.nn.norm import first_gain

S = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)).double()


def make():
    dice = Dice(4).double()
    dice.alpha.data = torch.tensor([0.1, -0.3, 0.0, 0.7]).double()
    return dice


def test_its_gate_is_batch_normalisation_without_affine_part():
    dice, norm = make(), torch.nn.BatchNorm1d(4, affine=False, eps=1e-8).double()
    for training in (True, True, False):
        p = norm.train(training)(S).sigmoid()
        found = dice.train(training)(S)
        torch.testing.assert_close(found, p * S + (1 - p) * dice.alpha * S, rtol=0, atol=1e-12)
    torch.testing.assert_close(dice.mean, norm.running_mean)
    torch.testing.assert_close(dice.variance, norm.running_var)


def test_nothing_valid_moves_no_average():
    dice = make().train()
    assert dice(S, torch.zeros(11, dtype=torch.bool)).isfinite().all()
    assert (dice.mean == 0).all() and (dice.variance == 1).all()
    half = Dice(4).half().train()
    assert half(S[:1, :4].half()).isfinite().all()  # of one row, the variance is zero


@pytest.mark.parametrize("name", ["layer", "rms", "scale"])
def test_a_norm_of_large_float16_tokens_is_near_that_of_float64_and_one_of_zeros_is_zero(name):
    torch.manual_seed(0)
    norm, x = NORMS[name](32), (1000 * torch.randn(2, 5, 32)).half()
    gains = {"layer": [32, 32], "rms": [32], "scale": [1]}
    assert [p.numel() for p in norm.parameters()] == gains[name]
    found = norm.half()(x).double()
    torch.testing.assert_close(found, norm.double()(x.double()), rtol=2e-3, atol=2e-3)
    nothing = torch.zeros(2, 32, dtype=torch.float64, requires_grad=True)
    y = NORMS[name](32).double()(nothing)
    y.sum().backward()
    assert not y.any() and nothing.grad.isfinite().all()


PLAIN = {"relu": torch.relu, "gelu": gelu, "swish": silu}
GATES = dict(glu=torch.sigmoid, bilinear=lambda a: a, reglu=torch.relu, swiglu=silu)
GATES |= dict(geglu=gelu, geglu_tanh=partial(gelu, approximate="tanh"))


@pytest.mark.parametrize("name", FEED_FORWARDS.names())
def test_a_feed_forward_layer_is_its_formula(name):
    layer = FEED_FORWARDS[name](7, 9, bias=name in PLAIN).double()
    x = torch.randn(2, 5, 7, dtype=torch.float64)
    hidden = layer.value(x)
    hidden = PLAIN[name](hidden) if name in PLAIN else GATES[name](layer.gate(x)) * hidden
    assert hidden.shape == (2, 5, 9 if name in PLAIN else 6)
    assert (layer.value.bias is None) == (layer.out.bias is None) == (name in GATES)
    torch.testing.assert_close(layer(x), layer.out(hidden))


@pytest.mark.parametrize("name", FEED_FORWARDS.names())
@pytest.mark.parametrize("dim, hidden_dim", [(768, 3072), (24, 100), (16, None)])
def test_widths_are_matched_in_parameters(name, dim, hidden_dim):
    with torch.device("meta"):
        layer = FEED_FORWARDS[name](dim, hidden_dim)
    count = sum(p.numel() for p in layer.parameters())
    plain = 2 * dim * (hidden_dim or 4 * dim)
    assert abs(count - plain) <= 1.5 * dim  # half a unit of width, three matrices
    if (dim, hidden_dim) == (768, 3072):
        assert layer.value.out_features == (2048 if name in GATES else 3072)
        assert count == plain


@pytest.mark.parametrize("radius", [False, True])
@pytest.mark.parametrize("height, width", [(5, 7), (1, 4), (6, 1)])
def test_a_convolution_reads_the_coordinates_row_first(height, width, radius):
    layer = CoordConv2d(3, 4, 3, stride=2, padding=1, radius=radius).double()
    x = torch.randn(2, 3, height, width, dtype=torch.float64)
    ends = {n: 1.0 if n > 1 else 0.0 for n in (height, width)}  # one row is in the middle
    axes = (torch.linspace(-ends[n], ends[n], n, dtype=x.dtype) for n in (height, width))
    row, column = torch.meshgrid(*axes, indexing="ij")
    where = torch.stack([row, column, (row**2 + column**2).sqrt()][: 2 + radius])
    wide = torch.cat([x, where.expand(2, -1, -1, -1)], 1)
    expected = conv2d(wide, layer.conv.weight, layer.conv.bias, stride=2, padding=1)
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)
    assert torch.equal(layer(x > 0), layer((x > 0).double()))


def test_the_first_gain_grows_with_the_vocabulary():
    # ln(1 + 0.01 V ln V) / sqrt(D): V = 256, D = 400 by hand
    assert first_gain(400, 256) == pytest.approx(0.1361, abs=1e-4)
    assert first_gain(400, 2) == 0.05 and first_gain(4, 256) == 0.3
