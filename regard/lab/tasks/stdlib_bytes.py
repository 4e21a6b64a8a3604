"""Stdlib bytes: the next byte of the Python standard library's own source."""

import platform
from dataclasses import dataclass

import numpy as np

from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.examples import Examples
from regard.lab.data.stdlib import Split, read_modules, split_of, stdlib_root
from regard.lab.data.windows import BYTE_VOCABULARY, cut, sample
from regard.lab.tasks.language_model import LanguageModelling
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class StdlibBytes(LanguageModelling):
    """Token = byte + 1. Whole files are held out, decided by a hash of their name; repeated files count once.

    Training sees every window of its files. Validation and test are REDUCED to samples of `valid_size` and
    `test_size` windows, drawn by `seed`, in which each byte is predicted once; a number larger than there are
    windows takes all. The text is that of the running interpreter: results compare only at equal checksums.
    """

    name = "stdlib_bytes"
    sources = ("stdlib",)
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name, length=self.length, valid_size=self.valid_size, test_size=self.test_size
        )

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        modules = read_modules(stdlib_root())
        rng = np.random.default_rng(self.seed)

        def part(split: Split, size: int | None) -> Examples:
            names = [name for name in modules if split_of(name) == split]
            texts = [modules[names[i]] for i in rng.permutation(len(names))]
            windows = cut(self.name, texts, self.length)
            return Examples.windows(*sample(windows, size or len(windows.tokens), rng))

        return Splits(
            part("train", None),
            part("valid", self.valid_size),
            part("test", self.test_size),
            notes={"cpython": platform.python_version()},
        )
