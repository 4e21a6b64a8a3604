"""Recall: multi-query associative recall, the cheap task that separates mechanisms by their memory."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from regard.data.checks import check_seed, check_sizes
from regard.data.examples import Examples
from regard.data.recall import check_recall, generate_recall
from regard.tasks.accuracy import accuracy_of_answers
from regard.tasks.next_token import NextToken
from regard.tasks.task import IGNORED, Batch, Splits


@dataclass(frozen=True, kw_only=True)
class Recall(NextToken):
    """Labels stand at the asked keys only; accuracy counts those. The defaults are small, for small machines."""

    name = "recall"
    metric = "accuracy"
    better = "higher"
    baseline = "first value of the row"
    vocab_size: int = 128  # type: ignore[misc]  # an option here, a constant of the other tasks

    train_size: int = 20000
    valid_size: int = 500
    test_size: int = 1000
    length: int = 64
    num_pairs: int = 8
    spread: float = 0.01

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name,
            train_size=self.train_size,
            valid_size=self.valid_size,
            test_size=self.test_size,
        )
        check_recall(self.length, self.num_pairs, self.vocab_size, self.spread)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        sizes = (self.train_size, self.valid_size, self.test_size)
        found = generate_recall(
            sum(sizes),
            length=self.length,
            num_pairs=self.num_pairs,
            vocab_size=self.vocab_size,
            spread=self.spread,
            seed=self.seed,
        )
        borders = np.cumsum(sizes)[:-1]
        parts = zip(np.split(found.tokens, borders), np.split(found.labels, borders), strict=True)
        return Splits(*(Examples.windows(*part) for part in parts))

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return accuracy_of_answers(self.name, model, batches, vocab_size=self.vocab_size)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the row's first value: in the row, and no association."""
        test = (splits or self.load()).test
        labels = test.labels.view(-1, self.length)
        first = torch.stack([test[i]["tokens"][1] for i in range(len(test))])
        asked = labels != IGNORED
        return float((labels == first[:, None])[asked].double().mean())
