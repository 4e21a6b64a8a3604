"""Readers of pictures."""

import gzip
import struct

import numpy as np

from regard.lab.data.images import read_idx


def test_what_was_written_is_read():
    pictures = np.random.default_rng(0).integers(0, 256, (3, 2, 5), dtype=np.uint8)
    head = struct.pack(">HBB3I", 0, 8, 3, *pictures.shape)
    assert np.array_equal(read_idx(gzip.compress(head + pictures.tobytes())), pictures)
