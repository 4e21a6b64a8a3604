"""Readers of pictures: IDX files, Fashion-MNIST."""

from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.labelled import Images
from regard.lab.data.received import check_inflation, unpacked

_MOST_AXES = 8
_LONGEST_HEAD = 4 + 4 * _MOST_AXES
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(content: bytes, name: str = "IDX file") -> NDArray[np.generic]:
    """IDX files, as MNIST's: two zero bytes, a type, the number of axes, the sizes in big-endian order, then the values.

    The array; gzip is undone, as far as the head says and no further. Raises StoredDataError where head and size do not agree.
    """
    packed = content[:2] == b"\x1f\x8b"
    head = unpacked(content, name, _LONGEST_HEAD) if packed else content[:_LONGEST_HEAD]
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
        raise StoredDataError(f"{name} does not begin as an IDX file does")
    dtype, axes = np.dtype(_TYPES[head[2]]), head[3]
    start = 4 + 4 * axes
    if axes > _MOST_AXES or len(head) < start:
        raise StoredDataError(
            f"{name} says that it has {axes} axes, and its head does not hold them"
        )
    shape = np.frombuffer(head[4:start], dtype=">u4").tolist()
    expected = start + prod(shape) * dtype.itemsize
    if packed:
        check_inflation(name, len(content), expected)
        content = unpacked(content, name, expected + 1)
    if len(content) != expected:
        raise StoredDataError(
            f"{name} says {shape}, which is {expected} bytes, and has {len(content)} bytes"
            + (" or more" if packed and len(content) > expected else "")
        )
    values = np.frombuffer(content, dtype=dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="), copy=False)


_FOLDER = "usr/share/datasets/fashion-mnist"


def read_fashion_mnist(archive: Archive, part: Literal["train", "test"]) -> Images:
    """Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747): 28x28 grey pictures of ten kinds of clothes.

    pixels [60000 28 28] and labels in train, 10000 in test; the order is that of the files.
    """
    stem = "train" if part == "train" else "t10k"
    names = [f"{_FOLDER}/{stem}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    pixels, labels = (read_idx(archive.read(name), name) for name in names)
    return Images(pixels.astype(np.uint8), labels.astype(np.int64))
