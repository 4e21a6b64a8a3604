"""Texts and pictures with a label each: what every reader of such data returns, whoever made the files."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")


class Texts(NamedTuple):
    texts: list[bytes]
    labels: NDArray[np.integer]  # [n], numbers of `classes`
    classes: tuple[str, ...]


class TextPairs(NamedTuple):
    first: list[bytes]
    second: list[bytes]
    labels: NDArray[np.integer]  # [n], 1: they belong together


class Images(NamedTuple):
    pixels: NDArray[np.integer]  # [n height width], or [n height width 3]; 0..255
    labels: NDArray[np.integer]  # [n]


def label(texts: list[bytes], names: list[str], classes: tuple[str, ...] | None = None) -> Texts:
    """Texts whose classes are given by name; the classes are sorted by name unless they are told."""
    classes = tuple(sorted(set(names))) if classes is None else classes
    number = {name: place for place, name in enumerate(classes)}
    return Texts(texts, np.array([number[name] for name in names], dtype=np.int64), classes)


def first_of_each(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[Item]:
    """The items without those whose key stood before."""
    found: dict[Hashable, Item] = {}
    for item in items:
        found.setdefault(key(item), item)
    return list(found.values())


def apart(parts: Sequence[Iterable[Item]], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Each part without the items whose key stood before, in it or in a part before it."""
    numbered = [(number, item) for number, part in enumerate(parts) for item in part]
    kept = first_of_each(numbered, key=lambda one: key(one[1]))
    return [[item for of, item in kept if of == number] for number in range(len(parts))]


def spaced(text: bytes) -> bytes:
    """Runs of white space become one space: the key by which repeated texts are found."""
    return b" ".join(text.split())
