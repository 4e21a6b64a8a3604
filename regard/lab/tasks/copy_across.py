"""Copy across: symbols to repeat after a long gap, for models whose memory must reach across it."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from regard.lab.data.checks import check_sizes
from regard.lab.data.copy_across import FIRST_SYMBOL, generate_copies
from regard.lab.tasks.accuracy import accuracy_of_answers, most_frequent_answer
from regard.lab.tasks.drawn import Drawn
from regard.lab.tasks.next_token import NextToken
from regard.lab.tasks.task import Batch, Splits


@dataclass(frozen=True, kw_only=True)
class CopyAcross(Drawn, NextToken):
    """Accuracy over the repeated symbols. A model that reads in segments shorter than `gap` needs a memory."""

    name = "copy_across"
    metric = "accuracy"
    better = "higher"
    baseline = "most frequent symbol"

    copied: int = 8
    gap: int = 16
    symbols: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.name, copied=self.copied, gap=self.gap, symbols=self.symbols)

    @property
    def vocab_size(self) -> int:  # type: ignore[override]  # follows from an option here
        return FIRST_SYMBOL + self.symbols

    @property
    def max_len(self) -> int:
        return 2 * self.copied + self.gap

    def load(self) -> Splits:
        found = generate_copies(
            self.total, copied=self.copied, gap=self.gap, symbols=self.symbols, seed=self.seed
        )
        return self.windows(found.tokens, found.labels)

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        return accuracy_of_answers(self.name, model, batches, vocab_size=self.vocab_size)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the training split's most frequent symbol."""
        return most_frequent_answer(splits or self.load())
