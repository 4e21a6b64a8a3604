"""Pictures from a user's own copy: CIFAR-10, MNIST, the Long Range Arena's Pathfinder."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.images import read_idx
from regard.lab.data.labelled import Images
from regard.lab.data.own.format import Parts, text_of

CIFAR10 = "a folder with data_batch_1 to data_batch_5 and test_batch (cifar-10-batches-py)"


_ARRAYS = {"_reconstruct", "ndarray", "dtype"}


def read_cifar10(path: Path) -> Parts:
    """CIFAR-10 in its Python batches (Krizhevsky 2009): pickles of `data` [n 3072], red, green, blue, and `labels`.

    A pickle can run code when it is opened. This reader accepts numpy arrays and nothing else.
    """
    train = [_cifar_batch(need(path / f"data_batch_{number}", CIFAR10)) for number in range(1, 6)]
    return {
        "train": Images(*(np.concatenate(parts) for parts in zip(*train, strict=True))),
        "test": _cifar_batch(need(path / "test_batch", CIFAR10)),
    }


def grey(pixels: NDArray[np.integer]) -> NDArray[np.integer]:
    """[n h w 3] -> [n h w] with the weights of ITU-R BT.601, rounded down: Long Range Arena's Image."""
    return (pixels @ np.array([0.2989, 0.5870, 0.1140])).astype(np.uint8)


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in _ARRAYS:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch of CIFAR needs")


def _cifar_batch(path: Path) -> Images:
    try:
        found = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels, labels = np.asarray(found[b"data"]), np.array(found[b"labels"], dtype=np.int64)
        shaped = pixels.astype(np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError) as error:
        raise StoredDataError(f"{path} is no batch of CIFAR-10: {error}") from None
    if len(shaped) != len(labels):
        raise StoredDataError(f"{path} has {len(shaped)} pictures and {len(labels)} labels")
    return Images(shaped, labels)


MNIST = "a folder with {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, or these as .gz"


def read_mnist(path: Path) -> Parts:
    """MNIST, and what is written as it is, in IDX files, packed or not."""
    return {part: _idx_part(path, stem) for part, stem in (("train", "train"), ("test", "t10k"))}


def _idx_part(path: Path, stem: str) -> Images:
    files = []
    for kind in ("images-idx3", "labels-idx1"):
        plain = path / f"{stem}-{kind}-ubyte"
        packed = plain.with_name(f"{plain.name}.gz")
        files.append(packed if packed.exists() else need(plain, MNIST))
    pixels, labels = (read_idx(file.read_bytes(), str(file)) for file in files)
    if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
        raise StoredDataError(
            f"{files[0]} holds {list(pixels.shape)} and {files[1]} {list(labels.shape)}: "
            "expected [n, height, width] and [n]"
        )
    return Images(pixels.astype(np.uint8), labels.astype(np.int64))


PATHFINDER = "a folder with metadata/*.npy and imgs/, such as pathfinder32/curv_contour_length_14"


def read_pathfinder(path: Path) -> Parts:
    """Pathfinder as Long Range Arena released it: pictures in folders, and lists of `folder file number label ...` beside them.

    The release has no splits; the order is that of the lists, by number. A picture of no bytes, of which the release has one,
    is left out.
    """
    lists = sorted(
        need(path / "metadata", PATHFINDER).glob("*.npy"),
        key=lambda file: (len(file.stem), file.stem),
    )
    pictures, labels = [], []
    for file in lists:
        for number, line in enumerate(text_of(file).splitlines(), 1):
            words = line.split()
            if len(words) < 4 or words[3] not in ("0", "1"):
                raise StoredDataError(
                    f"{file}, line {number}: expected a folder, a file, a number and a label (0 or 1)"
                )
            picture = need(path / words[0] / words[1], PATHFINDER)
            if picture.stat().st_size:
                pictures.append(_grey(picture))
                labels.append(int(words[3]))
    if not pictures:
        raise StoredDataError(f"{path / 'metadata'} lists no picture")
    return {"all": Images(np.stack(pictures), np.array(labels, dtype=np.int64))}


def _grey(path: Path) -> NDArray[np.integer]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("L"), dtype=np.uint8)
    except (UnidentifiedImageError, OSError) as error:
        raise StoredDataError(f"{path} cannot be read as a picture: {error}") from None
