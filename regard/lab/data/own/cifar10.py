"""CIFAR-10 in its Python batches (Krizhevsky 2009): pickles of `data` [n 3072], red, green, blue, and `labels`.

A pickle can run code when it is opened. These are opened by a reader that knows numpy arrays and nothing else.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.labelled import Images
from regard.lab.data.own.format import Format, Parts

LAYOUT = "a folder with data_batch_1 to data_batch_5 and test_batch (cifar-10-batches-py)"
_ARRAYS = {"_reconstruct", "ndarray", "dtype"}


def read(path: Path) -> Parts:
    train = [_batch(need(path / f"data_batch_{number}", LAYOUT)) for number in range(1, 6)]
    return {
        "train": Images(*(np.concatenate(parts) for parts in zip(*train, strict=True))),
        "test": _batch(need(path / "test_batch", LAYOUT)),
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


def _batch(path: Path) -> Images:
    try:
        found = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels, labels = np.asarray(found[b"data"]), np.array(found[b"labels"], dtype=np.int64)
        shaped = pixels.astype(np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError) as error:
        raise StoredDataError(f"{path} is no batch of CIFAR-10: {error}") from None
    if len(shaped) != len(labels):
        raise StoredDataError(f"{path} has {len(shaped)} pictures and {len(labels)} labels")
    return Images(shaped, labels)


FORMAT = Format(
    name="cifar10",
    about="CIFAR-10 (Python version): colour pictures of ten kinds of things",
    layout=LAYOUT,
    read=read,
)
