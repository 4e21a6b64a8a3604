"""Recall: multi-query associative recall, the cheap task that separates mechanisms by their memory."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from regard.lab.data.recall import check_recall, generate_recall
from regard.lab.tasks.accuracy import accuracy_of_answers
from regard.lab.tasks.drawn import Drawn
from regard.lab.tasks.next_token import NextToken
from regard.lab.tasks.task import IGNORED, Batch, Splits


@dataclass(frozen=True, kw_only=True)
class Recall(Drawn, NextToken):
    """Labels stand at the asked keys only; accuracy counts those. The defaults are small, for small machines."""

    name = "recall"
    metric = "accuracy"
    better = "higher"
    baseline = "first value of the row"
    vocab_size: int = 128  # type: ignore[misc]  # an option here, a constant of the other tasks

    length: int = 64
    num_pairs: int = 8
    spread: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_recall(self.length, self.num_pairs, self.vocab_size, self.spread)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        found = generate_recall(
            self.total,
            length=self.length,
            num_pairs=self.num_pairs,
            vocab_size=self.vocab_size,
            spread=self.spread,
            seed=self.seed,
        )
        return self.windows(found.tokens, found.labels)

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return accuracy_of_answers(self.name, model, batches, vocab_size=self.vocab_size)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the row's first value: in the row, and no association."""
        test = (splits or self.load()).test
        labels = test.labels.view(-1, self.length)
        first = torch.stack([test[i]["tokens"][1] for i in range(len(test))])
        asked = labels != IGNORED
        return float((labels == first[:, None])[asked].double().mean())
