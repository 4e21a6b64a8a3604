"""Digits: 8x8 images read pixel by pixel, as classification over ten digits."""

from dataclasses import dataclass

import numpy as np

from regard.core import OptionError
from regard.data.checks import check_seed, check_sizes
from regard.data.digits import GREY_VALUES, PIXELS, read_digits
from regard.data.examples import Examples
from regard.tasks.classify import Classify
from regard.tasks.task import Splits

_IMAGES = 1797


@dataclass(frozen=True, kw_only=True)
class Digits(Classify):
    """Token = grey value + 1, 64 tokens an image; every class has its share in each split, drawn by `seed`."""

    name = "digits"
    vocab_size = GREY_VALUES + 1
    num_classes = 10

    valid_size: int = 270
    test_size: int = 360

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, valid_size=self.valid_size, test_size=self.test_size)
        for size in ("valid_size", "test_size"):
            if getattr(self, size) < self.num_classes:
                raise OptionError(
                    f"digits: {size} ({getattr(self, size)}) must be at least {self.num_classes}, one image a class"
                )
        if self.valid_size + self.test_size > _IMAGES - self.num_classes:
            raise OptionError(
                f"digits: valid_size + test_size ({self.valid_size + self.test_size}) must leave at least "
                f"{self.num_classes} of the {_IMAGES} images for training"
            )

    @property
    def max_len(self) -> int:
        return PIXELS

    def load(self) -> Splits:
        from sklearn.model_selection import train_test_split

        pixels, labels = read_digits()
        rest, test = train_test_split(
            np.arange(_IMAGES), test_size=self.test_size, stratify=labels, random_state=self.seed
        )
        train, valid = train_test_split(
            rest, test_size=self.valid_size, stratify=labels[rest], random_state=self.seed
        )

        def part(rows: np.ndarray) -> Examples:
            return Examples(pixels[rows].ravel() + 1, np.full(len(rows), PIXELS), labels[rows])

        return Splits(part(train), part(valid), part(test))
