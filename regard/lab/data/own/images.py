"""Pictures from a user's own copy: CIFAR-10, MNIST, the Long Range Arena's Pathfinder."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.images import read_idx
from regard.lab.data.labelled import Images
from regard.lab.data.own.batches import read_batch
from regard.lab.data.own.format import Parts
from regard.lab.data.received import check_labels, inside, lines_of, opened, read_whole

CIFAR10 = "a folder with data_batch_1 to data_batch_5 and test_batch (cifar-10-batches-py)"


def read_cifar10(path: Path) -> Parts:
    """CIFAR-10 in its Python batches (Krizhevsky 2009): pickles of `data` [n 3072], red, green, blue, and `labels`.

    A pickle can run code when it is opened. `own/batches.py` reads the values of these and runs nothing.
    """
    train = [_cifar_batch(path, f"data_batch_{number}") for number in range(1, 6)]
    return {
        "train": Images(*(np.concatenate(parts) for parts in zip(*train, strict=True))),
        "test": _cifar_batch(path, "test_batch"),
    }


def grey(pixels: NDArray[np.integer]) -> NDArray[np.integer]:
    """[n h w 3] -> [n h w] with the weights of ITU-R BT.601, rounded down: Long Range Arena's Image."""
    return (pixels @ np.array([0.2989, 0.5870, 0.1140])).astype(np.uint8)


def _cifar_batch(folder: Path, name: str) -> Images:
    path = inside(folder, name, CIFAR10)
    found = read_batch(path)
    pixels, labels = found.get(b"data"), found.get(b"labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise StoredDataError(f"{path} is no batch of CIFAR-10: it has no pictures in bytes")
    if pixels.shape[1] != 3 * 32 * 32:
        raise StoredDataError(
            f"{path} has {pixels.shape[1]} numbers for a picture, where 3072 belong"
        )
    if not isinstance(labels, list):
        raise StoredDataError(f"{path} is no batch of CIFAR-10: it has no list of labels")
    if len(pixels) != len(labels):
        raise StoredDataError(f"{path} has {len(pixels)} pictures and {len(labels)} labels")
    shaped = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Images(shaped, check_labels(str(path), labels, 10))


MNIST = "a folder with {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, or these as .gz"


def read_mnist(path: Path) -> Parts:
    """MNIST, and what is written as it is, in IDX files, packed or not."""
    return {part: _idx_part(path, stem) for part, stem in (("train", "train"), ("test", "t10k"))}


def _idx_part(path: Path, stem: str) -> Images:
    files = []
    for kind in ("images-idx3", "labels-idx1"):
        plain = f"{stem}-{kind}-ubyte"
        packed = (path / f"{plain}.gz").exists()
        files.append(inside(path, f"{plain}.gz" if packed else plain, MNIST))
    pixels, labels = (read_idx(read_whole(file), str(file)) for file in files)
    if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
        raise StoredDataError(
            f"{files[0]} holds {list(pixels.shape)} and {files[1]} {list(labels.shape)}: "
            "expected [n, height, width] and [n]"
        )
    for file, values in zip(files, (pixels, labels), strict=True):
        if values.dtype != np.uint8:
            raise StoredDataError(f"{file} holds {values.dtype}, where bytes from 0 to 255 belong")
    return Images(pixels.astype(np.uint8, copy=False), check_labels(str(files[1]), labels, 10))


PATHFINDER = "a folder with metadata/*.npy and imgs/, such as pathfinder32/curv_contour_length_14"


def read_pathfinder(path: Path) -> Parts:
    """Pathfinder as Long Range Arena released it: pictures in folders, and lists of `folder file number label ...` beside them.

    The release has no splits; the order is that of the lists, by number. A picture of no bytes, of which the release has one,
    is left out.
    """
    lists = sorted(
        inside(path, "metadata", PATHFINDER).glob("*.npy"),
        key=lambda file: (len(file.stem), file.stem),
    )
    pictures: list[NDArray[np.integer]] = []
    labels: list[int] = []
    for file in lists:
        for number, line in lines_of(inside(path, f"metadata/{file.name}", PATHFINDER)):
            words = line.split()
            if len(words) < 4 or words[3] not in ("0", "1"):
                raise StoredDataError(
                    f"{file}, line {number}: expected a folder, a file, a number and a label (0 or 1)"
                )
            picture = inside(path, f"{words[0]}/{words[1]}", PATHFINDER)
            if picture.stat().st_size:
                pixels = _grey(picture)
                if pictures and pixels.shape != pictures[0].shape:
                    raise StoredDataError(
                        f"{file}, line {number}: {picture} has {list(pixels.shape)} pixels, and those before it "
                        f"{list(pictures[0].shape)}"
                    )
                pictures.append(pixels)
                labels.append(int(words[3]))
    if not pictures:
        raise StoredDataError(f"{path / 'metadata'} lists no picture")
    return {"all": Images(np.stack(pictures), np.array(labels, dtype=np.int64))}


_LARGEST = 1024


def _grey(path: Path) -> NDArray[np.integer]:
    from PIL import Image

    try:
        with opened(path) as file, Image.open(file, formats=["PNG"]) as picture:
            if max(picture.size) > _LARGEST:
                raise StoredDataError(
                    f"{path} has {picture.size} pixels: {_LARGEST} a side is the most"
                )
            return np.asarray(picture.convert("L"), dtype=np.uint8)
    except StoredDataError:
        raise
    except Exception as error:  # damaged files raise nearly anything in Pillow's many readers
        raise StoredDataError(f"{path} cannot be read as a picture: {error}") from None
