"""The split that a text is in, and the one of several equal texts that is kept."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import sha256
from typing import Literal, TypeVar

import numpy as np

from regard.lab.data.records import Integers

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


def split_of(name: str) -> Split:
    """One file in ten is in "test", one in ten in "valid": decided by its name alone."""
    share = int.from_bytes(sha256(name.encode()).digest()[:8]) % 10
    return "test" if share == 0 else "valid" if share == 1 else "train"


Item = TypeVar("Item")


def first_of_each(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[Item]:
    """The items whose key is new."""
    found = dict[Hashable, Item]()
    for item in items:
        found.setdefault(key(item), item)
    return list(found.values())


def apart(parts: Sequence[Iterable[Item]], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """The items of each part whose key is new, in this part and in those before it."""
    numbered = [(number, item) for number, part in enumerate(parts) for item in part]
    kept = first_of_each(numbered, key=lambda one: key(one[1]))
    return [[item for of, item in kept if of == number] for number in range(len(parts))]


def spaced(text: str) -> str:
    """Runs of white space become one space: the key by which repeated texts are found."""
    return " ".join(text.split())


def stratified(
    labels: Integers, valid: float, test: float, seed: int
) -> tuple[Integers, Integers, Integers]:
    """Indices of the three parts, drawn by `seed`; every class has the same share (of its rows, rounded) in each."""
    rng = np.random.default_rng(seed)
    found = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        borders = np.round(np.cumsum([test, valid]) * len(rows)).astype(int)
        found.append(np.split(rows, borders))
    of_test, of_valid, of_train = map(np.concatenate, zip(*found, strict=True))
    return rng.permutation(of_train), rng.permutation(of_valid), rng.permutation(of_test)
