"""Weights in few bytes: how much fits, and what is refused. What the page reads of them: tests/explore/test_page.py."""

import pytest
import torch

import regard
from regard.explore.inputs import Group, Sheet
from regard.explore.packed import pack, windows


def group(values, prefix=0):
    _, T, S = values[0].shape
    names = [str(n) for n in range(max(T, S))]
    sheets = [Sheet(f"layer {n}", "made_up", "stochastic", v) for n, v in enumerate(values)]
    return Group("made up", names[:T], names[:S], False, sheets, prefix)


def test_fewer_levels_are_kept_where_bytes_are_few():
    values = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))
    sizes = []
    for room in (40_000, 24_000, 16_000):
        (packed,) = pack([group([values])], window=64, max_bytes=room)
        sizes.append(packed["levels"])
        parts = [part for head in packed["sheets"][0]["data"] for part in head]
        assert sum(len(part["codes"]) for part in parts) < room
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    with pytest.raises(regard.OptionError, match="more than 8,000 bytes with 3 levels"):
        pack([group([values])], window=64, max_bytes=8_000)
    with pytest.raises(regard.OptionError, match="NaN or infinities"):
        pack([group([values / 0])], window=64, max_bytes=10**6)


def test_long_inputs_keep_the_windows_along_the_diagonal():
    T = 3 * 4096
    long = windows(T, T, 4096, 1)
    assert [(rows.start, cols.start) for rows, cols in long] == [(0, 0), (4096, 4096), (8192, 8192)]


def test_weights_of_external_tokens_are_counted():
    """Of queries that see any."""
    values = torch.full((1, 2, 3), 1 / 3)
    values = torch.nn.functional.pad(values, (0, 1, 0, 1))
    (packed,) = pack([group([values], prefix=1)], window=4, max_bytes=10**6)
    (sheet,) = packed["sheets"]
    assert sheet["external"] == pytest.approx([1 / 3], abs=1e-3)
    assert sheet["statistics"]["first"] == [0.5]
