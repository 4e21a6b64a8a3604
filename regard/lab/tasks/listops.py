"""ListOps: the value of a nested list expression, as classification over ten digits."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.lab.data.examples import Examples
from regard.lab.data.generated import Columns, generated
from regard.lab.data.listops import VOCABULARY, check_grammar, generate_listops
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.drawn import Drawn
from regard.lab.tasks.task import Splits

_RULE = 2  # raised when the same options begin to give other expressions
_FOR_A_PROCESS = 10_000_000  # tokens


@dataclass(frozen=True, kw_only=True)
class ListOps(Drawn, Classify):
    """Expressions from the published grammar; no expression is in two splits.

    The defaults are REDUCED for small machines (max_depth 6, 50 < tokens < 200, 20000 + 500 + 1000 examples) and
    must not be compared with published scores. The published setting (arXiv 2011.04006) is max_depth=10,
    min_length=500, max_length=2000, train_size=96000, valid_size=2000, test_size=2000. Expressions are generated once and
    kept in the cache.
    """

    name = "listops"
    vocab_size = len(VOCABULARY)
    num_classes = 10

    min_length: int = 50  # exclusive, as in the published generator
    max_length: int = 200  # exclusive
    max_depth: int = 6
    max_args: int = 10
    operator_probability: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
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
        told: dict[str, Any] = dict(
            min_length=self.min_length,
            max_length=self.max_length,
            max_depth=self.max_depth,
            max_args=self.max_args,
            operator_probability=self.operator_probability,
            seed=self.seed,
        )

        def make() -> Columns:
            tokens = self.total * self.max_length
            processes = max(1, min(os.cpu_count() or 1, tokens // _FOR_A_PROCESS))
            return generate_listops(self.total, **told, processes=processes)._asdict()

        count = {"count": self.total, "rule": _RULE}
        found = generated(self.name, told | count, make)
        rows = np.cumsum([self.train_size, self.valid_size])
        lengths, values = np.split(found["lengths"], rows), np.split(found["values"], rows)
        tokens = np.split(found["tokens"], np.cumsum(found["lengths"])[rows - 1])
        train, valid, test = map(Examples, tokens, lengths, values)
        return Splits(train, valid, test)
