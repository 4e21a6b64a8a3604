"""Stdlib permuted: bytes of the Python standard library's own source, asked for in drawn orders."""

import platform
from dataclasses import dataclass

import numpy as np

from regard.data.checks import check_seed, check_sizes
from regard.data.records import Records
from regard.data.stdlib import Split, read_modules, split_of, stdlib_root
from regard.data.windows import BYTE_VOCABULARY, cut, sample
from regard.tasks.permuted import PermutedLanguageModelling
from regard.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class StdlibPermuted(PermutedLanguageModelling):
    """Token = byte + 1; files are split, windows cut and REDUCED to samples as in `stdlib_bytes`.

    Its bits are those of bytes that see both sides, and must not be compared with left-to-right ones.
    """

    name = "stdlib_permuted"
    vocab_size = BYTE_VOCABULARY

    length: int = 256  # tokens in a window
    valid_size: int = 256  # windows
    test_size: int = 512

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name,
            length=self.length,
            valid_size=self.valid_size,
            test_size=self.test_size,
            k=self.k,
        )

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        modules = read_modules(stdlib_root())
        rng = np.random.default_rng(self.seed)

        def part(split: Split, size: int | None) -> Records:
            names = [name for name in modules if split_of(name) == split]
            texts = [modules[names[i]] for i in rng.permutation(len(names))]
            windows = cut(self.name, texts, self.length)
            return self.ordered(sample(windows, size or len(windows.tokens), rng), rng)

        return Splits(
            part("train", None),
            part("valid", self.valid_size),
            part("test", self.test_size),
            notes={"cpython": platform.python_version()},
        )
