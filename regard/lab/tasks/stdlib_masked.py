"""Stdlib masked: hidden bytes of the Python standard library's own source."""

import platform
from dataclasses import dataclass

import numpy as np

from regard.lab.data.stdlib import read_modules, stdlib_root
from regard.lab.tasks.byte_windows import held_out
from regard.lab.tasks.masked import MaskedLanguageModelling
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class StdlibMasked(MaskedLanguageModelling):
    """Files are split and windows cut as in `stdlib_bytes`; results compare only at equal checksums."""

    name = "stdlib_masked"
    sources = ("stdlib",)

    def load(self) -> Splits:
        parts = held_out(
            self.name,
            read_modules(stdlib_root()),
            self.length,
            valid_size=self.valid_size,
            test_size=self.test_size,
            rng=np.random.default_rng(self.seed),
        )
        return self.masked(parts, {"cpython": platform.python_version()})
