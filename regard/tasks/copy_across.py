"""Copy across: symbols to repeat after a long gap, for models whose memory must reach across it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import nn

from regard.data.checks import check_seed, check_sizes
from regard.data.copy_across import FIRST_SYMBOL, generate_copies
from regard.data.examples import Examples
from regard.tasks.accuracy import accuracy_of_answers, most_frequent_answer
from regard.tasks.next_token import NextToken
from regard.tasks.task import Batch, Splits


@dataclass(frozen=True, kw_only=True)
class CopyAcross(NextToken):
    """Accuracy over the repeated symbols. A model that reads in segments shorter than `gap` needs a memory."""

    name = "copy_across"
    metric = "accuracy"
    better = "higher"
    baseline = "most frequent symbol"

    train_size: int = 20000
    valid_size: int = 500
    test_size: int = 1000
    copied: int = 8
    gap: int = 16
    symbols: int = 8

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name,
            train_size=self.train_size,
            valid_size=self.valid_size,
            test_size=self.test_size,
            copied=self.copied,
            gap=self.gap,
            symbols=self.symbols,
        )

    @property
    def vocab_size(self) -> int:  # type: ignore[override]  # follows from an option here
        return FIRST_SYMBOL + self.symbols

    @property
    def max_len(self) -> int:
        return 2 * self.copied + self.gap

    def load(self) -> Splits:
        sizes = (self.train_size, self.valid_size, self.test_size)
        found = generate_copies(
            sum(sizes), copied=self.copied, gap=self.gap, symbols=self.symbols, seed=self.seed
        )
        borders = np.cumsum(sizes)[:-1]
        parts = zip(np.split(found.tokens, borders), np.split(found.labels, borders), strict=True)
        return Splits(*(Examples.windows(*part) for part in parts))

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return accuracy_of_answers(self.name, model, batches, vocab_size=self.vocab_size)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the training split's most frequent symbol."""
        return most_frequent_answer(splits or self.load())
