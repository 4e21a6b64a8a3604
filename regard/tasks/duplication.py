"""Duplication: a sequence is read, and said again; what a model that hashes its keys must learn to find."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import nn

from regard.data.checks import check_seed, check_sizes
from regard.data.duplication import check_duplication, generate_duplications
from regard.data.examples import Examples
from regard.tasks.accuracy import accuracy_of_answers, most_frequent_answer
from regard.tasks.next_token import NextToken
from regard.tasks.task import Batch, Splits


@dataclass(frozen=True, kw_only=True)
class Duplication(NextToken):
    """Labels stand in the second half only; accuracy counts those. The paper's sizes are length 1023, vocab_size 129."""

    name = "duplication"
    metric = "accuracy"
    better = "higher"
    baseline = "most frequent token"
    vocab_size: int = 32  # type: ignore[misc]  # an option here, a constant of the other tasks

    train_size: int = 20000
    valid_size: int = 500
    test_size: int = 1000
    length: int = 63

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name,
            train_size=self.train_size,
            valid_size=self.valid_size,
            test_size=self.test_size,
        )
        check_duplication(self.length, self.vocab_size)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        sizes = (self.train_size, self.valid_size, self.test_size)
        found = generate_duplications(
            sum(sizes), length=self.length, vocab_size=self.vocab_size, seed=self.seed
        )
        borders = np.cumsum(sizes)[:-1]
        parts = zip(np.split(found.tokens, borders), np.split(found.labels, borders), strict=True)
        return Splits(*(Examples.windows(*part) for part in parts))

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return accuracy_of_answers(self.name, model, batches, vocab_size=self.vocab_size)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the training split's most frequent token."""
        return most_frequent_answer(splits or self.load())
