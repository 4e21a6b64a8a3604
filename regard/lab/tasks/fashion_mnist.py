"""Fashion-MNIST: 28x28 pictures of clothes read pixel by pixel, as classification in ten kinds."""

from dataclasses import dataclass

import numpy as np

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.fashion_mnist import read_fashion_mnist
from regard.lab.data.labelled import Images
from regard.lab.data.sources import archive
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.pixels import pixel_rows
from regard.lab.tasks.shares import stratified
from regard.lab.tasks.task import Splits

_PIXELS = 28 * 28
_TRAIN = 60000


@dataclass(frozen=True, kw_only=True)
class FashionMNIST(Classify):
    """Token = grey value + 1, 784 tokens a picture. The test part is the published one; every class has its share of the
    validation pictures, drawn by `seed` from the training part. No picture occurs twice in what is published.
    """

    name = "fashion_mnist"
    sources = ("fashion_mnist",)
    vocab_size = 257
    num_classes = 10

    valid_size: int = 5000

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, valid_size=self.valid_size)
        if self.valid_size >= _TRAIN:
            raise OptionError(
                f"fashion_mnist: valid_size ({self.valid_size}) must be below the {_TRAIN} training pictures"
            )

    @property
    def max_len(self) -> int:
        return _PIXELS

    def load(self) -> Splits:
        found = archive("fashion_mnist")
        return self.of(read_fashion_mnist(found, "train"), read_fashion_mnist(found, "test"))

    def of(self, train: Images, test: Images) -> Splits:
        share = self.valid_size / len(train.labels)
        rows, valid, _ = stratified(train.labels, share, 0.0, self.seed)
        return Splits(
            pixel_rows(train, rows),
            pixel_rows(train, valid),
            pixel_rows(test, np.arange(len(test.labels))),
        )
