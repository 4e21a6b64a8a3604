"""Pictures read pixel by pixel, as classification."""

import gzip
from functools import partial
from typing import Annotated, Literal, NamedTuple

import numpy as np

from regard.core import LARGEST, Range, check_option
from regard.lab.data.generated import Arrays, generated
from regard.lab.data.pathfinder import generate_pathfinder, published
from regard.lab.data.records import Examples, Integers, Ragged
from regard.lab.data.sources import archive
from regard.lab.data.splits import stratified
from regard.lab.tasks.task import Classify, Drawn, Splits


class Images(NamedTuple):
    pixels: Integers  # [n height width]; 0..255
    labels: Integers  # [n]


def read_idx(packed: bytes) -> Integers:
    """A packed IDX file: two zero bytes, a type, the number of axes, big-endian sizes, then the values."""
    content = gzip.decompress(packed)
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def pixel_rows(images: Images, rows: Integers) -> Examples:
    """Token = grey value + 1, row by row."""
    pixels = images.pixels[rows].reshape(len(rows), -1)
    return Examples(Ragged.even(pixels.astype(np.int32) + 1), images.labels[rows])


_IMAGES = 1797
_OfEach = Annotated[int, Range(10, LARGEST, "at least 10, one image a class")]


class Digits(Classify):
    """Digits: the 8x8 images of scikit-learn (E. Alpaydin, C. Kaynak, UCI 1998) read pixel by pixel, as classification in ten.

    Token = grey value + 1, 64 tokens an image; every class has its share in each split, drawn by `seed`.
    """

    name = "digits"
    sources = ("digits",)
    vocab_size = 18  # 17 grey values, and padding
    num_classes = 10
    image_size = 8, 8
    max_len = 64

    valid_size: _OfEach = 270
    test_size: _OfEach = 360

    def __post_init__(self):
        left = _IMAGES - self.valid_size - self.test_size
        check_option(self.name, "what they leave of the images", left, _OfEach)

    def load(self) -> Splits:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        images = Images(*load_digits(return_X_y=True))
        draw = partial(train_test_split, random_state=self.seed)
        rest, test = draw(np.arange(_IMAGES), test_size=self.test_size, stratify=images.labels)
        train, valid = draw(rest, test_size=self.valid_size, stratify=images.labels[rest])
        return Splits(*(pixel_rows(images, rows) for rows in (train, valid, test)))


class FashionMNIST(Classify):
    """Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747): 28x28 pictures of clothes read pixel by pixel, as classification in ten kinds.

    Token = grey value + 1, 784 tokens a picture. The test part is the published one; every class has its share of the
    validation pictures, drawn by `seed` from the training part. No picture occurs twice in what is published.
    """

    name = "fashion_mnist"
    sources = ("fashion_mnist",)
    vocab_size = 257
    num_classes = 10
    image_size = 28, 28
    max_len = 28 * 28

    valid_size: Annotated[int, Range(1, 59999, "below the 60000 training pictures")] = 5000

    def load(self) -> Splits:
        files = archive("fashion_mnist")
        folder = "usr/share/datasets/fashion-mnist/"
        kinds = ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
        train, test = (
            Images(*(read_idx(files[f"{folder}{part}-{kind}"]) for kind in kinds))
            for part in ("train", "t10k")
        )
        share = self.valid_size / len(train.labels)
        rows, valid, _ = stratified(train.labels, share, 0.0, self.seed)
        return Splits(
            pixel_rows(train, rows),
            pixel_rows(train, valid),
            pixel_rows(test, np.arange(len(test.labels))),
        )


_PATHFINDER_RULE = 3  # raised when the same options begin to give other pictures


class Pathfinder(Drawn, Classify):
    """Pathfinder: are the two discs on one dashed path? A picture read pixel by pixel, as classification in two classes.

    Token = grey value + 1. Pictures of 32, 64 or 128 (Path-X) pixels, by a rule of our own that is simpler than the published one.

    contour_length is the number of paddles of a path: 6 easy, 9 intermediate, 14 hard. The defaults are small (easy, 20000 + 1000 + 2000
    pictures); the published sizes (arXiv 2011.04006) are contour_length=14, train_size=160000, valid_size=20000,
    test_size=20000. No score compares with published ones. Pictures are generated once and kept in the cache: one costs a core
    1 ms (easy) to 9 ms (hard).
    """

    name = "pathfinder"
    vocab_size = 257
    num_classes = 2

    size: Literal[32, 64, 128] = 32  # pixels of a side
    contour_length: Annotated[int, Range(3, LARGEST, "at least 3")] = 6
    valid_size: int = 1000
    test_size: int = 2000

    @property
    def image_size(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def max_len(self) -> int:
        return self.size**2

    def load(self) -> Splits:
        drawing = published(self.size, self.contour_length)
        told = {"seed": self.seed, "count": self.total, "rule": _PATHFINDER_RULE}

        def make() -> Arrays:
            drawn = generate_pathfinder(drawing, self.total, seed=self.seed)
            return {"pixels": drawn.pixels, "labels": drawn.labels}

        pictures = Images(**generated(self.name, drawing._asdict() | told, make))
        return Splits(*(pixel_rows(pictures, rows) for rows in self.parts))
