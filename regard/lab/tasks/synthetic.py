"""Sequences drawn from a rule: ListOps, recall."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.options import Count, Part
from regard.lab.data.generated import Arrays, generated
from regard.lab.data.listops import VOCABULARY, Grammar, generate_listops
from regard.lab.data.records import Examples
from regard.lab.data.synthetic import check_recall, generate_recall
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.language_models import NextToken
from regard.lab.tasks.task import IGNORED, Batch, Drawn, Splits

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
        self.grammar.check()

    @property
    def grammar(self) -> Grammar:
        return Grammar(
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
        options = self.grammar._asdict() | {"seed": self.seed, "count": self.total}

        def make() -> Arrays:
            return generate_listops(self.total, self.grammar, seed=self.seed)._asdict()

        found = generated(self.name, options | {"rule": _LISTOPS_RULE}, make)
        rows = np.cumsum([self.train_size, self.valid_size])
        lengths, values = np.split(found["lengths"], rows), np.split(found["values"], rows)
        tokens = np.split(found["tokens"], np.cumsum(found["lengths"])[rows - 1])
        return Splits(*map(Examples, tokens, lengths, values))


@dataclass(frozen=True, kw_only=True)
class Answers(Drawn, NextToken):
    """Accuracy over the tokens that have a label. The baseline is always the training split's most frequent one."""

    metric = "accuracy"
    better = "higher"

    def item_sums(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Right answers of each row, and the tokens that have a label."""
        labels = batch["labels"]
        answers = self.answer(model, batch).argmax(-1)
        return (answers == labels).sum(1), (labels != IGNORED).sum(1)  # no answer is IGNORED

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
    vocab_size: int = 128  # an option here, a constant of the other tasks

    length: int = 64  # tokens of a row
    num_pairs: int = 8  # keys with a value each
    spread: Part = 0.01  # small: keys come back soon; 1: anywhere

    @property
    def max_len(self) -> int:
        return self.length

    def __post_init__(self) -> None:
        check_recall(self.length, self.num_pairs, self.vocab_size)

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
