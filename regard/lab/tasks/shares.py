"""Cutting rows into training, validation and test parts."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer]


def stratified(
    labels: NDArray[np.integer], valid: float, test: float, seed: int
) -> tuple[Rows, Rows, Rows]:
    """Rows of the three parts, drawn by `seed`; every class has the same share (of its rows, rounded) in each."""
    rng = np.random.default_rng(seed)
    parts: tuple[list[Rows], ...] = ([], [], [])
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        borders = np.round(np.cumsum([test, valid]) * len(rows)).astype(int)
        of_test, of_valid, of_train = np.split(rows, borders)
        for part, found in zip(parts, (of_train, of_valid, of_test), strict=True):
            part.append(found)
    train, valid_rows, test_rows = (rng.permutation(np.concatenate(part)) for part in parts)
    return train, valid_rows, test_rows
