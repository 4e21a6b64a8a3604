"""Associative recall, drawn from a rule."""

import numpy as np

from regard.core import OptionError, Part
from regard.lab.data.records import IGNORED, Examples
from regard.lab.tasks.task import Drawn, Splits


class Recall(Drawn):
    """Recall: multi-query associative recall (Arora et al. 2023, arXiv 2312.04927), the cheap task that separates mechanisms by memory.

        k1 v1 k2 v2 ... kn vn   . . k2 v2 . . . k1 v1 . .        each key comes once more; its value is the label there

    A query is at an even distance g behind the pairs, drawn without replacement with weight (g/2 + 1)^(spread - 1):
    small spreads put it early, spread 1 anywhere. The dots are random tokens. Keys and values are disjoint halves of the
    vocabulary. As in the paper, except that the dots are never padding (token 0).

    Only the repeated keys have labels; accuracy counts those. The defaults are small, for small machines.
    """

    name = "recall"
    kind = "language_model"
    baseline = "first value of the row"
    vocab_size: int = 128  # an option here, a constant of the other tasks

    length: int = 64  # tokens of a row
    num_pairs: int = 8  # keys with a value each
    spread: Part = 0.01  # small: keys come back soon; 1: anywhere

    def __post_init__(self):
        length = self.length
        pairs = self.num_pairs
        size = self.vocab_size
        if 4 * pairs > length:
            raise OptionError(
                f"recall: length ({length}) must be at least 4 * num_pairs ({4 * pairs}): pairs, then queries with answers"
            )
        if size // 2 - 1 < pairs:
            raise OptionError(
                f"recall: vocab_size ({size}) must be at least {2 * pairs + 2}, for num_pairs ({pairs}) keys"
            )

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        count = self.total
        pairs = self.num_pairs
        half = self.vocab_size // 2
        keys = 1 + rng.random((count, half - 1)).argsort(1)[:, :pairs]
        values = rng.integers(half, self.vocab_size, (count, pairs))
        tokens = rng.integers(1, self.vocab_size, (count, self.length + 1))
        labels = np.full((count, self.length), IGNORED)
        tokens[:, 0 : 2 * pairs : 2] = keys
        tokens[:, 1 : 2 * pairs : 2] = values
        free = self.length // 2 - pairs  # even distances
        weights = (self.spread - 1) * np.log(np.arange(1, free + 1))
        # the largest of log weight + Gumbel noise are a weighted draw without replacement
        order = (-weights - rng.gumbel(size=(count, free))).argsort(1)
        places = 2 * (pairs + order[:, :pairs])
        np.put_along_axis(tokens, places, keys, 1)
        np.put_along_axis(tokens, places + 1, values, 1)
        np.put_along_axis(labels, places, values, 1)
        tokens = tokens[:, : self.length]
        return Splits(*(Examples.windows(tokens[rows], labels[rows]) for rows in self.parts))

    def trivial_baseline(self, splits: Splits) -> float:
        """Accuracy of always answering the row's first value: in the row, and no association."""
        tokens, labels = splits.test.rows()
        return self.measure(*self.compared(tokens[:, 1:2], labels))
