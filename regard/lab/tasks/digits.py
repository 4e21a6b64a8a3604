"""Digits: 8x8 images read pixel by pixel, as classification over ten digits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.digits import GREY_VALUES, PIXELS, read_digits
from regard.lab.data.examples import Examples
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.task import Splits

_IMAGES = 1797
_CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class Digits(Classify):
    """Token = grey value + 1, 64 tokens an image; every class has its share in each split, drawn by `seed`."""

    name = "digits"
    sources = ("digits",)
    vocab_size = GREY_VALUES + 1
    num_classes = _CLASSES

    valid_size: int = 270
    test_size: int = 360

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, valid_size=self.valid_size, test_size=self.test_size)
        train_size = _IMAGES - self.valid_size - self.test_size
        sizes = {
            "valid_size": self.valid_size,
            "test_size": self.test_size,
            "what they leave of the images": train_size,
        }
        for name, size in sizes.items():
            if size < _CLASSES:
                raise OptionError(
                    f"digits: {name} ({size}) must be at least {_CLASSES}, one image a class"
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

        def part(rows: NDArray[np.integer]) -> Examples:
            return Examples(pixels[rows].ravel() + 1, np.full(len(rows), PIXELS), labels[rows])

        return Splits(part(train), part(valid), part(test))
