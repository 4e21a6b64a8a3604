"""IDX files, as MNIST's: two zero bytes, a type, the number of axes, the sizes in big-endian order, then the values."""

import gzip
from math import prod

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(content: bytes, name: str = "IDX file") -> NDArray[np.generic]:
    """The array; gzip is undone. Raises StoredDataError where the head and the size do not agree."""
    try:
        raw = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, OSError) as error:
        raise StoredDataError(f"{name} cannot be unpacked: {error}") from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _TYPES:
        raise StoredDataError(f"{name} does not begin as an IDX file does")
    dtype, axes = np.dtype(_TYPES[raw[2]]), raw[3]
    start = 4 + 4 * axes
    shape = np.frombuffer(raw[4:start], dtype=">u4").tolist()
    expected = start + prod(shape) * dtype.itemsize
    if len(shape) != axes or len(raw) != expected:
        raise StoredDataError(
            f"{name} says {shape}, which is {expected} bytes, and has {len(raw)} bytes"
        )
    values = np.frombuffer(raw, dtype=dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))
