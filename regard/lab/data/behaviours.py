"""Behaviours: who took which item and when; and the question that DIN answers about them: is this the user's next item?

A target is one of a user's positive behaviours; its history, the positive ones before it. The user's last is for testing, the
one before it for validation, `targets` before that for training. Each is asked beside an item that the user never touched,
drawn as often as it is a target of training: how popular an item is tells nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.records import Ragged

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
    """Users with fewer than three positive behaviours are left out; a history holds the newest `history` items."""
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
