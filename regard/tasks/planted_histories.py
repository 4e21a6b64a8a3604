"""Planted histories: is something of the candidate's kind among what was seen before? For DIN, and without a download.

The baseline sees the candidate and what is in the history, each for itself, which tell nothing: its AUC is 1/2.
"""

from dataclasses import dataclass

import numpy as np

from regard.data.checks import check_seed, check_sizes
from regard.data.planted_histories import check_planted_histories, generate_planted_histories
from regard.tasks.table import Table, TableSplits, table_splits


@dataclass(frozen=True, kw_only=True)
class PlantedHistories(Table):
    """history: items of each; their kinds are what counts."""

    name = "planted_histories"
    labels = ("liked",)

    history: int = 8
    num_items: int = 64
    num_kinds: int = 16
    train_size: int = 20000
    valid_size: int = 2000
    test_size: int = 4000

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(
            self.name,
            train_size=self.train_size,
            valid_size=self.valid_size,
            test_size=self.test_size,
        )
        check_planted_histories(self.history, self.num_items, self.num_kinds)

    @property
    def max_len(self) -> int:
        return self.history

    def load(self) -> TableSplits:
        sizes = (self.train_size, self.valid_size, self.test_size)
        found = generate_planted_histories(
            sum(sizes),
            length=self.history,
            num_items=self.num_items,
            num_kinds=self.num_kinds,
            seed=self.seed,
        )
        return table_splits(
            {"item": found.candidate, "history": found.history},
            found.liked[:, None].astype(float),
            np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]),
            of={"history": "item"},
        )
