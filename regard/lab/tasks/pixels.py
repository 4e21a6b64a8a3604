"""Pictures as sequences of their grey values."""

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.examples import Examples
from regard.lab.data.labelled import Images


def pixel_rows(images: Images, rows: NDArray[np.integer]) -> Examples:
    """Token = grey value + 1, row by row."""
    pixels = images.pixels[rows].reshape(len(rows), -1)
    tokens = pixels.astype(np.int32).ravel() + 1
    return Examples(tokens, np.full(len(rows), pixels.shape[1]), images.labels[rows])
