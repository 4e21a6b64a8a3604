"""Tables from a user's own copy: Criteo's advertisements, histories of shops."""

import ast
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.checks import need, need_file
from regard.lab.data.own.delimited import read_delimited
from regard.lab.data.own.format import Parts
from regard.lab.data.received import inside, lines_of, whole_number
from regard.lab.data.tables import Behaviours, numbered

COUNTS, CATEGORIES = 13, 26


CRITEO = (
    "the file train.txt: a label (0 or 1), 13 counts and 26 categories a line, tabs between them"
)


def read_criteo(
    path: Path, *, max_rows: int | None = None
) -> tuple[dict[str, list], NDArray[np.floating]]:
    """Criteo's display advertising data from a copy that the user has: label, 13 counts, 26 hashed categories, tabs between them.

    count -> floor(log(x)^2) where x > 2, as the winners of the challenge did and AutoInt does (arXiv 1810.11921, section 5.1)

    Columns I1 .. I13 and C1 .. C26, and the labels. Raises MissingDataError, StoredDataError naming the line.
    """
    need_file(path, CRITEO)
    rows: list[list[str]] = []
    for number, line in islice(lines_of(path), max_rows):
        row = line.split("\t")
        if len(row) != 1 + COUNTS + CATEGORIES or row[0] not in ("0", "1"):
            raise StoredDataError(
                f"{path}, line {number}: a label (0 or 1), {COUNTS} counts and {CATEGORIES} categories were "
                f"expected, got {len(row)} columns that begin with {row[0][:60]!r}"
            )
        for cell in row[1 : 1 + COUNTS]:
            if cell and whole_number(cell) is None:
                raise StoredDataError(
                    f"{path}, line {number}: {cell[:60]!r} is no count: a whole number, or nothing"
                )
        rows.append(row)
    if not rows:
        raise StoredDataError(f"{path} is empty")
    label, *columns = zip(*rows, strict=True)
    fields: dict[str, list] = {
        f"I{i}": [_number(cell) for cell in column] for i, column in enumerate(columns[:COUNTS], 1)
    }
    for i, column in enumerate(columns[COUNTS:], 1):
        fields[f"C{i}"] = [cell or None for cell in column]
    return fields, np.array(label, dtype=float)


def _number(cell: str) -> float:
    if not cell:
        return math.nan
    x = float(cell)
    return float(math.floor(math.log(x) ** 2)) if x > 2 else x


def read_criteo_rows(path: Path) -> Parts:
    return {"all": read_criteo(path)}


def count_criteo(part: Any) -> dict[str, int]:
    fields, labels = part
    return {"rows": len(labels), "clicked": int(labels.sum()), "fields": len(fields)}


AMAZON = "a folder with reviews_*.json and meta_*.json of one kind of products, or these as .gz"


TAOBAO = "the file UserBehavior.csv: user, item, category, behaviour and time a line"


class Shop(NamedTuple):
    """Histories of shops from a copy that the user has: Amazon reviews (McAuley et al. 2015) and Taobao's UserBehavior (Zhu et al. 2018).

    Amazon: a review a line, {"reviewerID": .., "asin": .., "unixReviewTime": ..}, and an item a line in the metadata,
    {"asin": .., "categories": [[..]]}, whose last category of the last list is the item's (as in DIN's code). Both may be gzip, and
    either JSON or, as the older files are, Python literals. Taobao: user,item,category,behaviour,time a line, without names.
    """

    behaviours: Behaviours
    users: list[str]  # by number
    items: list[str]
    categories: list[str | None]  # of each item


def read_amazon(reviews: Path, items: Path, *, max_rows: int | None = None) -> Shop:
    """Raises MissingDataError, StoredDataError naming the line."""
    rows = [
        (row["reviewerID"], row["asin"], row["unixReviewTime"])
        for row in _objects(reviews, _REVIEW, max_rows)
    ]
    category = {row["asin"]: _last(row["categories"]) for row in _objects(items, _ITEM)}
    if not rows:
        raise StoredDataError(f"{reviews} is empty: it holds no review")
    return _shop(rows, category)


def read_taobao(
    path: Path, *, kinds: Collection[str] = ("pv",), max_rows: int | None = None
) -> Shop:
    """kinds: of behaviour, among pv (a click), buy, cart and fav. Raises MissingDataError, StoredDataError naming the line."""
    rows, category = [], {}
    need_file(path, TAOBAO)
    for number, line in islice(lines_of(path), max_rows):
        row = line.split(",")
        time = whole_number(row[4]) if len(row) == 5 else None
        if time is None:
            raise StoredDataError(
                f"{path}, line {number}: five columns were expected (user, item, category, behaviour, time), "
                f"got {line[:60]!r}"
            )
        if row[3] in kinds:
            rows.append((row[0], row[1], time))
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


_REVIEW: dict[str, Callable[[Any], bool]] = {
    "reviewerID": lambda value: isinstance(value, str),
    "asin": lambda value: isinstance(value, str),
    "unixReviewTime": lambda value: type(value) is int and abs(value) < 2**62,
}
_ITEM: dict[str, Callable[[Any], bool]] = {
    "asin": lambda value: isinstance(value, str),
    "categories": lambda value: isinstance(value, list) and all(map(_is_path, value)),
}


def _is_path(categories: Any) -> bool:
    return isinstance(categories, list) and all(isinstance(name, str) for name in categories)


def _objects(
    path: Path, fields: Mapping[str, Callable[[Any], bool]], limit: int | None = None
) -> Iterator[dict]:
    """The object in each line; `fields` says what must be in it, and of which kind."""
    need_file(path, AMAZON)
    for number, line in islice(lines_of(path), limit):
        if not line.strip():
            continue
        try:
            row = json.loads(line) if line.startswith('{"') else ast.literal_eval(line)
            fits = isinstance(row, dict) and all(
                name in row and right(row[name]) for name, right in fields.items()
            )
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            fits = False
        if not fits:
            raise StoredDataError(
                f"{path}, line {number}: an object with {', '.join(fields)} was expected, got {line[:60]!r}"
            )
        yield row


def _last(categories: list) -> str | None:
    return categories[-1][-1] if categories and categories[-1] else None


def read_amazon_folder(path: Path) -> Parts:
    found = {}
    for name in ("reviews", "meta"):
        files = sorted(file for file in need(path, AMAZON).glob(f"{name}_*") if file.is_file())
        if len(files) != 1:
            raise StoredDataError(f"{path} has {len(files)} files {name}_*. Expected: {AMAZON}")
        found[name] = inside(path, files[0].name, AMAZON)
    return {"all": read_amazon(found["reviews"], found["meta"])}


def read_taobao_clicks(path: Path) -> Parts:
    return {"all": read_taobao(path)}


def count_shop(shop: Shop) -> dict[str, int]:
    return {
        "behaviours": len(shop.behaviours.user),
        "users": len(shop.users),
        "items": len(shop.items),
        "categories": len(set(shop.categories) - {None}),
    }


def read_table(path: Path) -> Parts:
    return {"all": read_delimited(path)}


def count_table(table: dict[str, list[str]]) -> dict[str, int]:
    return {"rows": len(next(iter(table.values()))), "columns": len(table)}
