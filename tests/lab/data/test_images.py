"""Readers of pictures."""

import gzip
import struct

import numpy as np

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
