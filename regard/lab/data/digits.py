"""The 8x8 digit images that come with scikit-learn (E. Alpaydin, C. Kaynak, UCI 1998): 1,797 images, 17 grey values."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Digits(NamedTuple):
    pixels: NDArray[np.integer]  # [1797, 64], 0..16, row by row
    labels: NDArray[np.integer]  # [1797], 0..9


GREY_VALUES = 17
PIXELS = 64


def read_digits() -> Digits:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return Digits(pixels.astype(np.int64), labels.astype(np.int64))
