"""Shakespeare masked: hidden bytes of plays and poems; whole works are held out."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.lab.data.plays import read_works
from regard.lab.data.sources import archive
from regard.lab.tasks.byte_windows import held_out
from regard.lab.tasks.masked import MaskedLanguageModelling
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class ShakespeareMasked(MaskedLanguageModelling):
    """Works are split and windows cut as in `shakespeare_bytes`."""

    name = "shakespeare_masked"
    sources = ("shakespeare",)

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
        return self.masked(parts)
