"""Sequences drawn from a rule: ListOps, recall."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from regard.core import OptionError
from regard.core.options import LARGEST, Count, Part, Range
from regard.lab.data.generated import generated
from regard.lab.data.listops import VOCABULARY, Grammar, generate_listops
from regard.lab.data.records import Examples
from regard.lab.data.synthetic import generate_recall
from regard.lab.tasks.task import Classify, Drawn, Splits

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
    max_args: Annotated[int, Range(2, LARGEST, "at least 2")] = 10  # arguments of an operator
    operator_probability: Part = 0.25  # of an operator in place of a digit

    def __post_init__(self) -> None:
        self.grammar.check()

    @property
    def grammar(self) -> Grammar:
        return Grammar(*(getattr(self, name) for name in Grammar._fields))

    @property
    def max_len(self) -> int:
        return self.max_length - 1

    def load(self) -> Splits:
        grammar, count, seed = self.grammar, self.total, self.seed
        options = grammar._asdict() | {"seed": seed, "count": count, "rule": _LISTOPS_RULE}
        found = generated(
            self.name, options, lambda: generate_listops(count, grammar, seed=seed)._asdict()
        )
        rows = np.cumsum([self.train_size, self.valid_size])
        lengths, values = np.split(found["lengths"], rows), np.split(found["values"], rows)
        tokens = np.split(found["tokens"], np.cumsum(found["lengths"])[rows - 1])
        return Splits(*map(Examples, tokens, lengths, values))


@dataclass(frozen=True, kw_only=True)
class Recall(Drawn):
    """Recall: multi-query associative recall, the cheap task that separates mechanisms by their memory.

    Only the repeated keys have labels; accuracy counts those. The defaults are small, for small machines.
    """

    name = "recall"
    kind = "language_model"
    baseline = "first value of the row"
    vocab_size: int = 128  # an option here, a constant of the other tasks

    length: int = 64  # tokens of a row
    num_pairs: int = 8  # keys with a value each
    spread: Part = 0.01  # small: keys come back soon; 1: anywhere

    def __post_init__(self) -> None:
        length, pairs, size = self.length, self.num_pairs, self.vocab_size
        if 4 * pairs > length:
            raise OptionError(
                f"recall: length ({length}) must be at least 4 * num_pairs ({4 * pairs}): pairs, then queries with answers"
            )
        if size // 2 - 1 < pairs:
            raise OptionError(
                f"recall: vocab_size ({size}) must be at least {2 * pairs + 2}, for num_pairs ({pairs}) keys"
            )

    def load(self) -> Splits:
        found = generate_recall(
            self.total,
            length=self.length,
            num_pairs=self.num_pairs,
            vocab_size=self.vocab_size,
            spread=self.spread,
            seed=self.seed,
        )
        return Splits(
            *(Examples.windows(found.tokens[rows], found.labels[rows]) for rows in self.parts)
        )

    def trivial_baseline(self, splits: Splits) -> float:
        """Accuracy of always answering the row's first value: in the row, and no association."""
        tokens, labels = splits.test.rows()  # type: ignore[attr-defined]  # Examples
        return self.measure(*self.compared(tokens[:, 1:2], labels))
