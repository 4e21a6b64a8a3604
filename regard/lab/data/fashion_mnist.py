"""Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747): 28x28 grey pictures of ten kinds of clothes."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from regard.lab.data.archives import Archive
from regard.lab.data.idx import read_idx
from regard.lab.data.labelled import Images

CLASSES = (
    "t-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_FOLDER = "usr/share/datasets/fashion-mnist"


def read_fashion_mnist(archive: Archive, part: Literal["train", "test"]) -> Images:
    """pixels [60000 28 28] and labels in train, 10000 in test; the order is that of the files."""
    stem = "train" if part == "train" else "t10k"
    names = [f"{_FOLDER}/{stem}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    pixels, labels = (read_idx(archive.read(name), name) for name in names)
    return Images(pixels.astype(np.uint8), labels.astype(np.int64))


def count_fashion_mnist(archive: Archive) -> Mapping[str, int]:
    train, test = read_fashion_mnist(archive, "train"), read_fashion_mnist(archive, "test")
    return {
        "train": len(train.pixels),
        "test": len(test.pixels),
        "classes": len(np.unique(train.labels)),
        "pixels": train.pixels[0].size,
        "fewest of a class": int(np.bincount(train.labels).min()),
    }
