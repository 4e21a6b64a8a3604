"""Texts and pictures with a label each: what every reader of such data returns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Texts(NamedTuple):
    texts: list[bytes]
    labels: NDArray[np.integer]  # [n], numbers of `classes`
    classes: tuple[str, ...]


class Images(NamedTuple):
    pixels: NDArray[np.integer]  # [n height width], or [n height width 3]; 0..255
    labels: NDArray[np.integer]  # [n]


def label(texts: list[bytes], names: list[str], classes: tuple[str, ...] | None = None) -> Texts:
    """Texts whose classes are given by name; `classes` defaults to the sorted names."""
    classes = tuple(sorted(set(names))) if classes is None else classes
    number = {name: place for place, name in enumerate(classes)}
    return Texts(texts, np.array([number[name] for name in names], dtype=np.int64), classes)
