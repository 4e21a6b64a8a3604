"""Weights in few bytes: what comes back, how much fits, and what is refused."""

import base64
import zlib

import numpy as np
import pytest
import torch

import regard
from regard.explore.inputs import Group, Sheet
from regard.explore.packed import LEVELS, pack, windows


def group(values, cross=False, prefix=0):
    _, T, S = values[0].shape
    names = [str(n) for n in range(max(T, S))]
    sheets = [Sheet(f"layer {n}", "made_up", "stochastic", v) for n, v in enumerate(values)]
    return Group("made up", names[:T], names[:S], cross, sheets, prefix)


def unpacked(packed, layer=0, head=0):
    """The whole matrix of a head, as the page's script reads it."""
    found = np.full((len(packed["rows"]), len(packed["cols"])), np.nan)
    for (top, bottom, left, right), part in zip(
        packed["windows"], packed["sheets"][layer]["data"][head], strict=True
    ):
        codes = np.frombuffer(zlib.decompress(base64.b64decode(part["codes"])), np.uint8)
        codes = codes.reshape(bottom - top, right - left).astype(int)
        signed = part["max"] < 0
        levels = min(packed["levels"], 127) if signed else packed["levels"]
        negative = signed & (codes >= 128)
        size = abs(part["max"]) * ((codes - 128 * negative) / levels) ** 2
        found[top:bottom, left:right] = np.where(negative, -size, size)
    return found


@pytest.mark.parametrize("signed", [False, True])
def test_what_is_packed_comes_back(signed):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, 9, 9, generator=generator)
    values = values if signed else values.softmax(-1)
    (packed,) = pack([group([values, 3 * values])], window=4, max_bytes=10**6)
    assert len(packed["windows"]) == 9 and packed["levels"] == LEVELS[0]
    levels = 127 if signed else 255
    for layer, factor in enumerate((1, 3)):
        found, wanted = unpacked(packed, layer, 1), factor * values[1].numpy()
        most = np.abs(wanted).max()
        assert np.abs(found - wanted).max() <= most / levels
        large = np.abs(wanted) > most / 1e4
        assert np.array_equal(np.sign(found[large]), np.sign(wanted[large]))


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
    values = torch.full((1, 2, 3), 1 / 3)
    (packed,) = pack([group([values], prefix=1)], window=4, max_bytes=10**6)
    (sheet,) = packed["sheets"]
    assert sheet["external"] == pytest.approx([1 / 3], abs=1e-3)
    assert sheet["statistics"]["first"] == [0.5]
