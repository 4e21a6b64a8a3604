"""Tasks whose examples are drawn from a seed: how many are asked for, and in which part they are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.examples import Examples
from regard.lab.tasks.task import Splits, Task


@dataclass(frozen=True, kw_only=True)
class Drawn(Task):
    """The first examples train, the next are for validation, the last for the test."""

    train_size: int = 20000
    valid_size: int = 500
    test_size: int = 1000

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name,
            train_size=self.train_size,
            valid_size=self.valid_size,
            test_size=self.test_size,
        )

    @property
    def total(self) -> int:
        """Of all parts."""
        return self.train_size + self.valid_size + self.test_size

    @property
    def parts(self) -> list[NDArray[np.integer]]:
        """The rows of training, validation and test."""
        borders = np.cumsum([self.train_size, self.valid_size])
        return np.split(np.arange(self.total), borders)

    def windows(self, tokens: NDArray[np.integer], labels: NDArray[np.integer]) -> Splits:
        """Of sequences of one length with a label for each token, both [total T]."""
        return Splits(*(Examples.windows(tokens[rows], labels[rows]) for rows in self.parts))
