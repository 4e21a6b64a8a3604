"""Symbols to repeat after a gap: w1 w2 ... wn - - ... - : w1 w2 ... wn, for models that must reach across it."""

from dataclasses import dataclass

import numpy as np

from regard.core.options import Count
from regard.lab.data.records import IGNORED
from regard.lab.tasks.synthetic import Answers
from regard.lab.tasks.task import Splits

BLANK, SIGN, FIRST = 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class SaidAgain(Answers):
    """The label of the sign is w1, that of each repeated symbol the next; all other tokens have none."""

    name = "said_again"
    baseline = "most frequent symbol"

    copied: int = 8
    gap: Count = 16
    symbols: int = 8
    opened: bool = False  # by a sign

    @property
    def vocab_size(self) -> int:
        return FIRST + self.symbols

    @property
    def max_len(self) -> int:
        return 2 * self.copied + self.gap + self.opened

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        words = rng.integers(FIRST, self.vocab_size, (self.total, self.copied))
        between = np.full((self.total, self.gap + 1), BLANK)
        between[:, -1] = SIGN
        first = np.full((self.total, int(self.opened)), SIGN)
        whole = np.concatenate([first, words, between, words], 1)
        labels = whole[:, 1:].copy()
        labels[:, : -self.copied] = IGNORED
        return self.windows(whole[:, :-1], labels)
