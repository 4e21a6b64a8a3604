"""Sequences drawn from a rule: ListOps, recall, copying."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.core import OptionError
from regard.core.options import Count
from regard.lab.data.generated import Arrays, generated
from regard.lab.data.listops import VOCABULARY, check_grammar, generate_listops
from regard.lab.data.records import Examples
from regard.lab.data.synthetic import (
    FIRST_SYMBOL,
    check_duplication,
    check_recall,
    generate_copies,
    generate_duplications,
    generate_recall,
)
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.language_models import NextToken
from regard.lab.tasks.task import IGNORED, Batch, Drawn, Splits, evaluation, ratio_items

_LISTOPS_RULE = 2  # raised when the same options begin to give other expressions


@dataclass(frozen=True, kw_only=True)
class ListOps(Drawn, Classify):
    """ListOps: the value of a nested list expression, as classification over ten digits.

    Expressions from the published grammar; no expression is in two splits.

    The defaults are REDUCED for small machines (max_depth 6, 50 < tokens < 200, 20000 + 500 + 1000 examples) and
    must not be compared with published scores. The published setting (arXiv 2011.04006) is max_depth=10,
    min_length=500, max_length=2000, train_size=96000, valid_size=2000, test_size=2000. Expressions are generated once and
    kept in the cache.
    """

    name = "listops"
    vocab_size = len(VOCABULARY)
    num_classes = 10

    min_length: Count = 50  # exclusive, as in the published generator
    max_length: int = 200  # exclusive
    max_depth: int = 6  # nested operators
    max_args: int = 10  # arguments of an operator
    operator_probability: float = 0.25  # of an operator in place of a digit

    def __post_init__(self) -> None:
        check_grammar(
            self.min_length,
            self.max_length,
            self.max_depth,
            self.max_args,
            self.operator_probability,
        )

    @property
    def max_len(self) -> int:
        return self.max_length - 1

    def load(self) -> Splits:
        options: dict[str, Any] = dict(
            min_length=self.min_length,
            max_length=self.max_length,
            max_depth=self.max_depth,
            max_args=self.max_args,
            operator_probability=self.operator_probability,
            seed=self.seed,
        )

        def make() -> Arrays:
            return generate_listops(self.total, **options)._asdict()

        count = {"count": self.total, "rule": _LISTOPS_RULE}
        found = generated(self.name, options | count, make)
        rows = np.cumsum([self.train_size, self.valid_size])
        lengths, values = np.split(found["lengths"], rows), np.split(found["values"], rows)
        tokens = np.split(found["tokens"], np.cumsum(found["lengths"])[rows - 1])
        train, valid, test = map(Examples, tokens, lengths, values)
        return Splits(train, valid, test)


@dataclass(frozen=True, kw_only=True)
class Answers(Drawn, NextToken):
    """Accuracy over the tokens that have a label. The baseline is always the training split's most frequent one."""

    metric = "accuracy"
    better = "higher"
    length: int = 64  # tokens of a row

    @property
    def max_len(self) -> int:
        return self.length

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        from torchmetrics.classification import MulticlassAccuracy

        accuracy = MulticlassAccuracy(
            num_classes=self.vocab_size, average="micro", ignore_index=IGNORED
        )
        seen = False
        with evaluation(model):
            for batch in batches:
                answers = model(batch["tokens"], valid=batch["valid"]).argmax(-1)
                accuracy.to(answers.device).update(answers, batch["labels"])
                seen = True
        if not seen:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return float(accuracy.compute())

    def item_scores(self, model: nn.Module, batches: Iterable[Batch]) -> list[float]:
        right: list[float] = []
        counts: list[int] = []
        with evaluation(model):
            for batch in batches:
                labels = batch["labels"]
                answers = model(batch["tokens"], valid=batch["valid"]).argmax(-1)
                right += (answers == labels).sum(1).tolist()  # no answer is IGNORED
                counts += (labels != IGNORED).sum(1).tolist()
        return ratio_items(right, counts)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        splits = splits or self.load()
        seen, asked = (part.labels[part.labels != IGNORED] for part in (splits.train, splits.test))
        return float((asked == torch.bincount(seen).argmax()).double().mean())


@dataclass(frozen=True, kw_only=True)
class Recall(Answers):
    """Recall: multi-query associative recall, the cheap task that separates mechanisms by their memory.

    Only the repeated keys have labels; accuracy counts those. The defaults are small, for small machines.
    """

    name = "recall"
    baseline = "first value of the row"
    vocab_size: int = 128  # type: ignore[misc]  # an option here, a constant of the other tasks

    num_pairs: int = 8  # keys with a value each
    spread: float = 0.01  # small: keys come back soon; 1: anywhere

    def __post_init__(self) -> None:
        check_recall(self.length, self.num_pairs, self.vocab_size, self.spread)

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

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Accuracy of always answering the row's first value: in the row, and no association."""
        test = (splits or self.load()).test
        labels = test.labels.view(-1, self.length)
        first = torch.stack([test[i]["tokens"][1] for i in range(len(test))])
        asked = labels != IGNORED
        return float((labels == first[:, None])[asked].double().mean())


@dataclass(frozen=True, kw_only=True)
class CopyAcross(Answers):
    """Copy across: symbols to repeat after a long gap, for models whose memory must reach across it.

    Accuracy over the repeated symbols. A model that reads in segments shorter than `gap` needs a memory.
    """

    name = "copy_across"
    baseline = "most frequent symbol"
    length: int = field(default=0, init=False)  # follows from the others

    copied: int = 8  # symbols to repeat
    gap: int = 16  # tokens before the repetition
    symbols: int = 8  # different ones

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", 2 * self.copied + self.gap)

    @property
    def vocab_size(self) -> int:  # type: ignore[override]  # follows from an option here
        return FIRST_SYMBOL + self.symbols

    def load(self) -> Splits:
        found = generate_copies(
            self.total, copied=self.copied, gap=self.gap, symbols=self.symbols, seed=self.seed
        )
        return self.windows(found.tokens, found.labels)


@dataclass(frozen=True, kw_only=True)
class Duplication(Answers):
    """Duplication: repeat a sequence; a model that hashes its keys must learn to find the first copy.

    Only the second half has labels; accuracy counts those. The paper's sizes are length 1023, vocab_size 129.
    """

    name = "duplication"
    baseline = "most frequent token"
    vocab_size: int = 32  # type: ignore[misc]  # an option here, a constant of the other tasks

    length: int = 63

    def __post_init__(self) -> None:
        check_duplication(self.length, self.vocab_size)

    def load(self) -> Splits:
        found = generate_duplications(
            self.total, length=self.length, vocab_size=self.vocab_size, seed=self.seed
        )
        return self.windows(found.tokens, found.labels)
