"""Duplication: a sequence is read, and said again; what a model that hashes its keys must learn to find."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from regard.lab.data.duplication import check_duplication, generate_duplications
from regard.lab.tasks.accuracy import accuracy_of_answers, most_frequent_answer
from regard.lab.tasks.drawn import Drawn
from regard.lab.tasks.next_token import NextToken
from regard.lab.tasks.task import Batch, Splits


@dataclass(frozen=True, kw_only=True)
class Duplication(Drawn, NextToken):
    """Labels stand in the second half only; accuracy counts those. The paper's sizes are length 1023, vocab_size 129."""

    name = "duplication"
    metric = "accuracy"
    better = "higher"
    baseline = "most frequent token"
    vocab_size: int = 32  # type: ignore[misc]  # an option here, a constant of the other tasks

    length: int = 63

    def __post_init__(self) -> None:
        super().__post_init__()
        check_duplication(self.length, self.vocab_size)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        found = generate_duplications(
            self.total, length=self.length, vocab_size=self.vocab_size, seed=self.seed
        )
        return self.windows(found.tokens, found.labels)

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return accuracy_of_answers(self.name, model, batches, vocab_size=self.vocab_size)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the training split's most frequent token."""
        return most_frequent_answer(splits or self.load())
