"""Pathfinder: are the two discs on one dashed path? A picture read pixel by pixel, as classification in two classes."""

import dataclasses
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.checks import check_sizes
from regard.lab.data.examples import Examples
from regard.lab.data.generated import Columns, generated
from regard.lab.data.pathfinder import generate_pathfinder, published
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.drawn import Drawn
from regard.lab.tasks.task import Splits

_RULE = 2  # raised when the same options begin to give other pictures
_FOR_A_PROCESS = 2_000_000  # pixels


@dataclass(frozen=True, kw_only=True)
class Pathfinder(Drawn, Classify):
    """Token = grey value + 1. Pictures of the published drawing rule and settings for 32, 64 or 128 (Path-X) pixels.

    contour_length is the number of paddles of a path: 6 easy, 9 intermediate, 14 hard. The defaults are REDUCED for small
    machines (easy, 20000 + 1000 + 2000 pictures) and must not be compared with published scores. The published setting
    (arXiv 2011.04006) is contour_length=14, train_size=160000, valid_size=20000, test_size=20000. Pictures are generated
    once and kept in the cache: at contour_length=14 a picture costs one core 1.4 ms of 32 pixels, 79 ms of 64 and 119 ms of 128
    (Path-X), so that the published 200000 take 5 minutes, 4.4 hours and 6.6 hours, divided by the processes.
    """

    name = "pathfinder"
    vocab_size = 257
    num_classes = 2

    size: int = 32
    contour_length: int = 6
    valid_size: int = 1000
    test_size: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.name, contour_length=self.contour_length)
        published(self.size, self.contour_length)

    @property
    def max_len(self) -> int:
        return self.size**2

    def load(self) -> Splits:
        import PIL

        drawing, count = published(self.size, self.contour_length), self.total
        told = dataclasses.asdict(drawing) | {"seed": self.seed, "count": count}
        versions = {"rule": _RULE, "pillow": PIL.__version__}

        def make() -> Columns:
            processes = max(1, min(os.cpu_count() or 1, count * self.size**2 // _FOR_A_PROCESS))
            drawn = generate_pathfinder(drawing, count, seed=self.seed, processes=processes)
            return {"pixels": drawn.pixels, "labels": drawn.labels}

        found = generated(self.name, told | versions, make)
        pixels = found["pixels"].reshape(count, self.max_len)

        def part(rows: NDArray[np.integer]) -> Examples:
            tokens = pixels[rows].astype(np.int32).ravel() + 1
            return Examples(tokens, np.full(len(rows), self.max_len), found["labels"][rows])

        train, valid, test = map(part, self.parts)
        return Splits(train, valid, test, notes={"pillow": PIL.__version__})
