import pytest
import torch
from torch import nn

import regard
from regard.nn import FEED_FORWARDS

GATES = {
    "glu": torch.sigmoid,
    "bilinear": lambda a: a,
    "reglu": torch.relu,
    "geglu": nn.functional.gelu,
    "geglu_tanh": lambda a: nn.functional.gelu(a, approximate="tanh"),
    "swiglu": lambda a: a * torch.sigmoid(a),
}
PLAIN = {"relu": torch.relu, "gelu": nn.functional.gelu, "swish": lambda a: a * torch.sigmoid(a)}


def test_every_kind_is_compared():
    assert regard.FEED_FORWARDS.names() == [*PLAIN, *GATES]


@pytest.mark.parametrize("name", GATES)
def test_gated_is_the_formula_with_the_gate_in_the_activation(name):
    layer = FEED_FORWARDS[name](7, 9).double()
    x = torch.randn(2, 5, 7, dtype=torch.float64)
    w, v, out = layer.gate.weight, layer.value.weight, layer.out.weight
    assert w.shape == (6, 7)
    torch.testing.assert_close(layer(x), (GATES[name](x @ w.T) * (x @ v.T)) @ out.T)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_is_the_formula_with_biases(name):
    layer = FEED_FORWARDS[name](7, 9, bias=True).double()
    x = torch.randn(2, 5, 7, dtype=torch.float64)
    hidden = PLAIN[name](x @ layer.value.weight.T + layer.value.bias)
    torch.testing.assert_close(layer(x), hidden @ layer.out.weight.T + layer.out.bias)


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


def test_bad_width_is_named():
    with pytest.raises(regard.OptionError, match=r"hidden_dim \(0\) must be a positive integer"):
        FEED_FORWARDS["gelu"](8, 0)
