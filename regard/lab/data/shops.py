"""Histories of shops from a copy that the user has: Amazon reviews (McAuley et al. 2015) and Taobao's UserBehavior (Zhu et al. 2018).

Amazon: a review a line, {"reviewerID": .., "asin": .., "unixReviewTime": ..}, and an item a line in the metadata,
{"asin": .., "categories": [[..]]}, whose last category of the last list is the item's (as in DIN's code). Both may be gzip, and
either JSON or, as the older files are, Python literals. Taobao: user,item,category,behaviour,time a line, without names.
"""

import ast
import csv
import gzip
import json
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.core import StoredDataError
from regard.lab.data.behaviours import Behaviours, numbered
from regard.lab.data.checks import need_file

AMAZON = "a folder with reviews_*.json and meta_*.json of one kind of products, or these as .gz"
TAOBAO = "the file UserBehavior.csv: user, item, category, behaviour and time a line"


class Shop(NamedTuple):
    behaviours: Behaviours
    users: list[str]  # by number
    items: list[str]
    categories: list[str | None]  # of each item


def read_amazon(reviews: Path, items: Path, *, max_rows: int | None = None) -> Shop:
    """Raises MissingDataError, StoredDataError naming the line."""
    rows = [
        (row["reviewerID"], row["asin"], int(row["unixReviewTime"]))
        for row in _objects(reviews, ("reviewerID", "asin", "unixReviewTime"), max_rows)
    ]
    category = {
        row["asin"]: _last(row["categories"]) for row in _objects(items, ("asin", "categories"))
    }
    return _shop(rows, category)


def read_taobao(
    path: Path, *, kinds: Collection[str] = ("pv",), max_rows: int | None = None
) -> Shop:
    """kinds: of behaviour, among pv (a click), buy, cart and fav. Raises MissingDataError, StoredDataError naming the line."""
    rows, category = [], {}
    with _text(path, TAOBAO) as file:
        for number, row in enumerate(islice(csv.reader(file), max_rows), 1):
            if len(row) != 5 or not row[4].lstrip("-").isdigit():
                raise StoredDataError(
                    f"{path}, line {number}: five columns were expected (user, item, category, behaviour, time), got {row}"
                )
            if row[3] in kinds:
                rows.append((row[0], row[1], int(row[4])))
                category[row[1]] = row[2]
    if not rows:
        raise StoredDataError(f"{path} holds no behaviour of the kinds {', '.join(kinds)}")
    return _shop(rows, category)


def _shop(rows: list[tuple[str, str, int]], category: dict[str, Any]) -> Shop:
    users, items, times = zip(*rows, strict=True)
    user, user_names = numbered(users)
    item, item_names = numbered(items)
    positive = np.ones(len(rows), dtype=bool)
    behaviours = Behaviours(user, item, np.array(times), positive)
    return Shop(behaviours, user_names, item_names, [category.get(name) for name in item_names])


def _objects(path: Path, names: Collection[str], limit: int | None = None) -> Iterator[dict]:
    with _text(path, AMAZON) as file:
        for number, line in enumerate(islice(file, limit), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line) if line.startswith('{"') else ast.literal_eval(line)
                assert all(name in row for name in names)
            except (ValueError, SyntaxError, AssertionError, TypeError):
                raise StoredDataError(
                    f"{path}, line {number}: an object with {', '.join(names)} was expected, got {line[:60]!r}"
                ) from None
            yield row


def _last(categories: list) -> str | None:
    return categories[-1][-1] if categories and categories[-1] else None


def _text(path: Path, layout: str) -> Any:
    need_file(path, layout)
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
