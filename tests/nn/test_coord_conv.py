import pytest
import torch
from torch.nn.functional import conv2d

from regard.nn import CoordConv2d


@pytest.mark.parametrize("radius", [False, True])
@pytest.mark.parametrize("height, width", [(5, 7), (1, 4), (6, 1)])
def test_coordinates_are_the_formula_row_first(height, width, radius):
    layer = CoordConv2d(1, 1, 1, bias=False, radius=radius).double()
    seen = []
    for channel in range(1, 3 + radius):
        layer.conv.weight.data.zero_()
        layer.conv.weight.data[0, channel] = 1
        seen.append(layer(torch.randn(2, 1, height, width, dtype=torch.float64))[1, 0].detach())
    for i in range(height):
        for j in range(width):
            y = 2 * i / (height - 1) - 1 if height > 1 else 0
            x = 2 * j / (width - 1) - 1 if width > 1 else 0
            wanted = [y, x, (y * y + x * x) ** 0.5][: len(seen)]
            assert [float(s[i, j]) for s in seen] == pytest.approx(wanted)


def test_without_weights_on_coordinates_it_is_a_convolution():
    layer = CoordConv2d(3, 4, 3, stride=2, padding=1, radius=True)
    assert layer.conv.weight.shape == (4, 6, 3, 3)
    layer.conv.weight.data[:, 3:] = 0
    x = torch.randn(2, 3, 9, 8)
    plain = conv2d(x, layer.conv.weight[:, :3], layer.conv.bias, stride=2, padding=1)
    torch.testing.assert_close(layer(x), plain)
