"""Readers of pictures."""

import gzip
import struct

import numpy as np
import pytest

from regard.core import StoredDataError
from regard.lab.data.images import read_idx


def written(values, code=0x08):
    head = struct.pack(f">HBB{values.ndim}I", 0, code, values.ndim, *values.shape)
    return head + values.tobytes()


def test_what_was_written_is_read_packed_or_not():
    pictures = np.random.default_rng(0).integers(0, 256, (3, 2, 5), dtype=np.uint8)
    assert np.array_equal(read_idx(written(pictures)), pictures)
    assert np.array_equal(read_idx(gzip.compress(written(pictures))), pictures)


def test_numbers_of_several_bytes_are_big_endian():
    values = np.array([1, -2, 70000], dtype=">i4")
    found = read_idx(written(values, 0x0C))
    assert found.dtype == np.int32 and found.tolist() == [1, -2, 70000]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"GIF89a", "does not begin as an IDX file does"),
        (written(np.zeros((2, 3), np.uint8))[:-1], r"says \[2, 3\], which is 18 bytes, and has 17"),
        (b"\x1f\x8bnot gzip", "cannot be unpacked"),
    ],
)
def test_damage_is_named(content, why):
    with pytest.raises(StoredDataError, match=why):
        read_idx(content, "pictures")
