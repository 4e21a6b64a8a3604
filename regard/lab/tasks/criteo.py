"""Criteo's display advertising data, from your own copy: is this advertisement clicked?

Rows are in the order of seven days: the first eight tenths train, the next validates, the last tests (the papers split at
random). Counts are transformed as AutoInt does. There is no package of it: `path` is the file train.txt.
"""

from dataclasses import dataclass

import numpy as np

from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.criteo import read_criteo
from regard.lab.tasks.own_copies import own_path
from regard.lab.tasks.table import Table, TableSplits, table_splits


@dataclass(frozen=True, kw_only=True)
class Criteo(Table):
    """max_rows: read no more than these. min_count: categories that are rarer in the training part are unknown."""

    name = "criteo"
    labels = ("clicked",)

    path: str = ""
    max_rows: int | None = 1_000_000
    min_count: int = 10

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, min_count=self.min_count)

    def load(self) -> TableSplits:
        fields, labels = read_criteo(
            own_path(self.name, self.path, self.name), max_rows=self.max_rows
        )
        borders = (np.array([0.8, 0.9]) * len(labels)).astype(int)
        parts = np.split(np.arange(len(labels)), borders)
        numeric = [name for name in fields if name.startswith("I")]
        return table_splits(
            fields, labels[:, None], parts, numeric=numeric, min_count=self.min_count
        )
