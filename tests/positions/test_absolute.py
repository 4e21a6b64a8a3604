import math

import pytest
import torch

import regard
from regard.positions import POSITIONS, make

FACTS = {"dim": 10, "num_heads": 2, "max_len": 12}
OPTIONS = {"coordinates": {"grid": (3, 4)}}
ADDED = [cls.name for cls in POSITIONS.values() if cls.kind == "absolute"]


def made(name, **options):
    return make(POSITIONS[name], FACTS, options or OPTIONS.get(name, {})).double()


def encoding(name, T=12, **options):
    zeros = torch.zeros(1, T, FACTS["dim"], dtype=torch.float64)
    return made(name, **options)(zeros, torch.arange(T)[None])[0].detach()


def test_catalogue():
    assert regard.POSITIONS is POSITIONS
    assert ADDED == ["none", "sinusoidal", "learned", "axial", "coordinates"]


@pytest.mark.parametrize("name", ADDED)
def test_position_not_column_decides(name):
    module = made(name)
    x = torch.randn(2, 5, 10, dtype=torch.float64)
    position = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    y = module(x, position)
    shift = y - x
    torch.testing.assert_close(shift[0, 2:], shift[1, :3])
    assert name == "none" or (shift[1, 0] - shift[1, 3]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["learned", "axial", "coordinates"])
def test_beyond_max_len_is_refused(name):
    module = made(name)
    with pytest.raises(regard.ShapeError, match=r"length \(13\) exceeds max_len \(12\)"):
        module(torch.zeros(1, 13, 10).double(), torch.arange(13)[None])
    with pytest.raises(regard.ShapeError, match=r"exceeds max_len"):
        module(torch.zeros(1, 1, 10).double(), torch.tensor([[12]]))


def test_sinusoidal_is_the_papers_table():
    table = encoding("sinusoidal")
    for p in range(12):
        for i in range(5):
            angle = p / 10000 ** (2 * i / 10)
            assert float(table[p, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-14)
            assert float(table[p, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-14)


def test_sinusoidal_halves_are_the_same_columns():
    halves = encoding("sinusoidal", T=40, pairing="half")
    order = torch.cat([torch.arange(0, 10, 2), torch.arange(1, 10, 2)])
    torch.testing.assert_close(encoding("sinusoidal", T=40)[:, order], halves, rtol=0, atol=1e-15)


def test_sinusoidal_of_odd_width_drops_the_last_column():
    table = make(POSITIONS["sinusoidal"], FACTS | {"dim": 7}, {})(
        torch.zeros(1, 4, 7).double(), torch.arange(4)[None]
    )
    assert table.shape == (1, 4, 7) and float(table[0, 1, 0]) == pytest.approx(math.sin(1))


def test_float32_angles_stay_exact_where_half_precision_would_not():
    module = make(POSITIONS["sinusoidal"], FACTS, {})
    far = torch.tensor([[4001]])
    low = module(torch.zeros(1, 1, 10, dtype=torch.bfloat16), far)
    assert low.dtype == torch.bfloat16
    exact = module(torch.zeros(1, 1, 10, dtype=torch.float64), far)
    assert (low.double() - exact).abs().max() < 5e-3


def test_axial_is_the_double_loop():
    module = made("axial", shape=(3, 4), dims=(4, 6))
    table = module(torch.zeros(1, 12, 10).double(), torch.arange(12)[None])[0]
    first, second = module.tables
    for r in range(3):
        for c in range(4):
            assert torch.equal(table[4 * r + c], torch.cat([first[r], second[c]]))
    assert sum(p.numel() for p in module.parameters()) == 3 * 4 + 4 * 6
    shorter = module(torch.zeros(1, 5, 10).double(), torch.arange(5)[None])[0]
    assert torch.equal(shorter, table[:5])


@pytest.mark.parametrize("max_len", [1, 2, 12, 13, 64, 1000])
def test_axial_makes_its_own_shape(max_len):
    module = make(POSITIONS["axial"], FACTS | {"max_len": max_len}, {})
    assert module.max_len == max_len and math.prod(module.shape) >= max_len
    rows = module(torch.zeros(1, max_len, 10), torch.arange(max_len)[None])[0]
    assert rows.detach().unique(dim=0).shape[0] == max_len


@pytest.mark.parametrize(
    "options, said",
    [
        ({"dims": (4, 5)}, "sum is dim"),
        ({"shape": (0, 3)}, "shape"),
    ],
)
def test_axial_refuses(options, said):
    with pytest.raises(regard.OptionError, match=said):
        make(POSITIONS["axial"], FACTS, options)


def test_coordinates_are_rows_then_columns_and_nothing_without_weights():
    module = made("coordinates", grid=(3, 4), radius=True)
    module.project.weight.data.copy_(torch.eye(3, dtype=torch.float64).repeat(4, 1)[:10])
    shift = module(torch.zeros(1, 12, 10).double(), torch.arange(12)[None])[0]
    for p in range(12):
        y, x = p // 4 - 1, 2 * (p % 4) / 3 - 1
        assert shift[p, :3].tolist() == pytest.approx([y, x, (x * x + y * y) ** 0.5])
    module.project.weight.data.zero_()
    x = torch.randn(1, 12, 10).double()
    assert torch.equal(module(x, torch.arange(12)[None]), x)


def test_missing_or_wrong_option_is_named():
    with pytest.raises(regard.OptionError, match="coordinates needs grid"):
        make(POSITIONS["coordinates"], FACTS, {})
    with pytest.raises(regard.UnknownNameError, match="Did you mean 'pairing'"):
        make(POSITIONS["sinusoidal"], FACTS, {"paring": "half"})
    with pytest.raises(regard.OptionError, match=r"pairing .* must be"):
        make(POSITIONS["sinusoidal"], FACTS, {"pairing": "both"})
