"""Shakespeare bytes: the next byte of plays and poems; whole works are held out."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.examples import Examples
from regard.lab.data.plays import read_works
from regard.lab.data.sources import archive
from regard.lab.data.windows import BYTE_VOCABULARY
from regard.lab.tasks.byte_windows import held_out
from regard.lab.tasks.language_model import LanguageModelling
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class ShakespeareBytes(LanguageModelling):
    """Token = byte + 1, of Shakespeare's works in modern spelling, 37 for training, 2 for validation, 3 for the test.

    Validation and test are REDUCED to samples of windows, drawn by `seed`; a number larger than there are takes all.
    """

    name = "shakespeare_bytes"
    sources = ("shakespeare",)
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        sizes = {"valid_size": self.valid_size, "test_size": self.test_size}
        check_sizes(self.name, length=self.length, **sizes)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        works = read_works(archive("shakespeare"))
        return self.of({name: text.encode("latin-1") for name, text in works.items()})

    def of(self, works: Mapping[str, bytes]) -> Splits:
        parts = held_out(
            self.name,
            works,
            self.length,
            valid_size=self.valid_size,
            test_size=self.test_size,
            rng=np.random.default_rng(self.seed),
        )
        return Splits(*(Examples.windows(*part) for part in parts))
