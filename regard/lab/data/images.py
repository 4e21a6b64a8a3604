"""Readers of pictures: IDX files, Fashion-MNIST."""

import gzip
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Images(NamedTuple):
    pixels: NDArray[np.integer]  # [n height width]; 0..255
    labels: NDArray[np.integer]  # [n]


def read_idx(packed: bytes) -> NDArray[np.uint8]:
    """Packed IDX files of bytes, as MNIST's: two zero bytes, a type, the number of axes, big-endian sizes, then the values."""
    content = gzip.decompress(packed)
    axes = content[3]
    shape = np.frombuffer(content, ">u4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


_FOLDER = "usr/share/datasets/fashion-mnist"


def read_fashion_mnist(archive: Mapping[str, bytes], part: Literal["train", "test"]) -> Images:
    """Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747): 28x28 grey pictures of ten kinds of clothes.

    pixels [60000 28 28] and labels in train, 10000 in test; the order is that of the files.
    """
    stem = "train" if part == "train" else "t10k"
    names = (f"{_FOLDER}/{stem}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    pixels, labels = (read_idx(archive[name]) for name in names)
    return Images(pixels, labels.astype(np.int64))
