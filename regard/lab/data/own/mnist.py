"""MNIST, and what is written as it is, in IDX files, packed or not."""

from pathlib import Path

import numpy as np

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.idx import read_idx
from regard.lab.data.labelled import Images
from regard.lab.data.own.format import Format, Parts

LAYOUT = "a folder with {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, or these as .gz"


def read(path: Path) -> Parts:
    return {part: _part(path, stem) for part, stem in (("train", "train"), ("test", "t10k"))}


def _part(path: Path, stem: str) -> Images:
    files = []
    for kind in ("images-idx3", "labels-idx1"):
        plain = path / f"{stem}-{kind}-ubyte"
        packed = plain.with_name(f"{plain.name}.gz")
        files.append(packed if packed.exists() else need(plain, LAYOUT))
    pixels, labels = (read_idx(file.read_bytes(), str(file)) for file in files)
    if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
        raise StoredDataError(
            f"{files[0]} holds {list(pixels.shape)} and {files[1]} {list(labels.shape)}: "
            "expected [n, height, width] and [n]"
        )
    return Images(pixels.astype(np.uint8), labels.astype(np.int64))


FORMAT = Format(name="mnist", about="MNIST and its likes, in IDX files", layout=LAYOUT, read=read)
